package perftest

import (
	"math"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A latencyResult is the result of a latency test.
type latencyResult struct {
	posted  []int64 // when each message was posted
	iters   int     // measured messages
	elapsed int64   // ns, of a run of a given duration
}

// runLatency measures one size. If it fails, the result covers the messages before the
// error.
func (e *endpoint) runLatency() (r latencyResult, err error) {
	l := &latency{endpoint: e, iters: e.o.Iters}
	if e.o.Duration > 0 {
		l.iters = math.MaxInt
	} else {
		l.posted = make([]int64, l.iters)
	}
	switch {
	case e.o.fetches():
		err = l.fetch()
	case e.o.Verb == Write:
		err = l.write()
	default:
		err = l.pingpong()
	}
	return l.result(err), err
}

// result returns the result of a run that has ended with or without an error.
func (l *latency) result(err error) latencyResult {
	switch {
	case l.o.Duration > 0:
		end := l.watchdog.end.Load()
		if end == 0 {
			end = now()
		}
		return latencyResult{iters: l.watchdog.sampled, elapsed: end - l.watchdog.begin.Load()}
	case err == nil:
		return latencyResult{posted: l.posted, iters: l.iters}
	}
	return latencyResult{posted: l.posted[:min(l.sent, len(l.posted))], iters: l.sent}
}

// A latency is the state of a run.
type latency struct {
	*endpoint
	posted    []int64
	iters     int
	sent, got int
}

// progress returns the number of messages that are done.
func (l *latency) progress() int { return choose(l.o.fetches(), l.sent, l.got) }

// pingpong exchanges messages in turn: SENDs, or WRITEs with immediate data.
func (l *latency) pingpong() error {
	first := l.o.client() == (l.o.Verb == Send) // with WRITEs the server is first
	q := l.qps[0]
	for l.sent < l.iters || l.got < l.iters {
		if l.got < l.iters && (l.sent > 0 || !first) {
			wc, err := l.poll(l.rcq)
			if err != nil {
				return err
			}
			if l.got == 0 {
				l.watchdog.startClock(l.o)
			}
			l.got++
			l.watchdog.sample(1)
			if err := l.processReceive(wc, l.iters); err != nil {
				return err
			}
		}
		if l.sent < l.iters {
			if err := l.post(q); err != nil {
				return err
			}
		}
	}
	return nil
}

// post posts a message and waits for its completion.
func (l *latency) post(q *queue) error {
	if l.o.LatencyGap > 0 {
		if err := l.gap(); err != nil {
			return err
		}
	}
	if l.posted != nil {
		l.posted[l.sent] = now()
	}
	if _, err := q.qp.PostSend(q.wrs...); err != nil {
		return err
	}
	l.sent++
	wc, err := l.poll(l.scq)
	if err != nil {
		return err
	}
	return l.check(wc, false)
}

// gap busy-waits before a message (--latency_gap).
func (l *latency) gap() error {
	until := now() + int64(l.o.LatencyGap)*int64(time.Microsecond)
	for now() < until {
		if l.watchdog.alarm.Load() {
			if err := l.watchdog.check(l.progress()); err != nil {
				return err
			}
		}
	}
	return nil
}

// write exchanges WRITEs in turn. An end detects a WRITE by the last byte, which is the
// number of the message.
func (l *latency) write() error {
	q := l.qps[0]
	memory := q.mr.Bytes()
	mine, theirs := q.sendOffset+l.size-1, q.recvOffset+l.size-1
	l.watchdog.startClock(l.o)
	for l.sent < l.iters || l.got < l.iters {
		if l.got < l.iters && (l.sent > 0 || l.o.client()) {
			l.got++
			if err := l.await(memory, theirs, byte(l.got)); err != nil {
				return err
			}
		}
		if l.sent < l.iters {
			memory[mine] = byte(l.sent + 1)
			if err := l.post(q); err != nil {
				return err
			}
			l.watchdog.sample(1)
		}
	}
	return nil
}

// await waits until a byte of the memory has a value. The peer ends after its last message, so its end is an error only
// if the message is not there.
func (l *latency) await(memory []byte, at int, value byte) error {
	for loadByte(memory, at) != value {
		if !l.watchdog.alarm.Load() {
			continue
		}
		if err := l.watchdog.check(l.progress()); err != nil {
			l.watchdog.alarm.Store(true) // for the next message, if this one has come
			if loadByte(memory, at) != value {
				return err
			}
		}
	}
	return nil
}

// fetch posts READs or atomics one after the other. The peer is passive.
func (l *latency) fetch() error {
	q := l.qps[0]
	l.watchdog.startClock(l.o)
	for l.sent < l.iters {
		if err := l.post(q); err != nil {
			return err
		}
		l.watchdog.sample(1)
	}
	return nil
}

// poll waits for a completion, also after the peer's end if it has come before.
func (l *latency) poll(cq *uverbs.CQ) (*uverbs.WC, error) {
	wcs := l.wcs[:1]
	if l.o.Events {
		l.watchdog.done.Store(int64(l.progress()))
		_, err := cq.PollWait(l.watchdog.ctx, wcs)
		return &wcs[0], l.watchdog.waited(err)
	}
	for {
		n, err := cq.Poll(wcs)
		if n > 0 || err != nil {
			return &wcs[0], err
		}
		if !l.watchdog.alarm.Load() {
			continue
		}
		if ended := l.watchdog.check(l.progress()); ended != nil {
			l.watchdog.alarm.Store(true) // for the next completion, if this one has come
			if n, err = cq.Poll(wcs); n > 0 || err != nil {
				return &wcs[0], err
			}
			return nil, ended
		}
	}
}
