package perftest

import (
	"context"
	"math"

	"github.com/goverbs/goverbs/uverbs"
)

// A bandwidthRun is the state and the result of one size of a bandwidth test.
type bandwidthRun struct {
	*endpoint
	iters int // messages of each QP
	total int // messages of all QPs

	sent, completed, received int
	// when each message was posted, and when its completion was polled; nil without a peak
	posted, done []int64
	began, ended int64
	reported     int // of an infinite run: messages in earlier reports
	pacer        *pacer
}

// runBandwidth measures one size. If it fails, the result covers the messages before
// the error.
func (e *endpoint) runBandwidth() (b *bandwidthRun, err error) {
	b = &bandwidthRun{endpoint: e, iters: e.o.Iters, total: e.o.Iters * e.o.QPs, pacer: e.o.pacer(e.size)}
	if e.o.Duration > 0 {
		b.iters, b.total = math.MaxInt, math.MaxInt
	} else if !e.o.NoPeak {
		b.posted, b.done = make([]int64, b.total), make([]int64, b.total)
	}
	b.began = now()
	switch {
	case e.o.receives() && e.o.Bidirectional:
		err = b.both()
	case e.o.receives() && !e.o.active():
		err = b.receive()
	default:
		err = b.send()
	}
	b.stop()
	return b, err
}

// stop sets the end of the measured time.
func (b *bandwidthRun) stop() {
	b.ended = now()
	if !b.o.timed() {
		return
	}
	b.began = b.watchdog.begin.Load()
	if end := b.watchdog.end.Load(); end != 0 {
		b.ended = end
	}
}

// messages returns the number of measured messages.
func (b *bandwidthRun) messages() int {
	switch {
	case b.o.timed():
		return b.watchdog.sampled
	case b.o.receives() && !b.o.active() && !b.o.Bidirectional:
		return b.received - b.reported
	}
	return b.completed - b.reported
}

// send keeps the send queues full until all messages have been sent and completed.
func (b *bandwidthRun) send() error {
	b.watchdog.startClock(b.o)
	for b.completed < b.total {
		if err := b.post(); err != nil {
			return err
		}
		if _, err := b.complete(b.o.Events); err != nil {
			return err
		}
		if err := b.checkWatchdog(); err != nil {
			return err
		}
	}
	return nil
}

// checkWatchdog calls the watchdog if its alarm is set.
func (b *bandwidthRun) checkWatchdog() error {
	if !b.watchdog.alarm.Load() {
		return nil
	}
	if err := b.watchdog.check(b.completed + b.received); err != nil {
		return err
	}
	return b.period()
}

// period prints the results of an infinite run since the last report, if the period has
// elapsed.
func (b *bandwidthRun) period() error {
	if !b.o.Infinite {
		return nil
	}
	at := now()
	if b.reported == 0 && b.messages() == 0 { // the peer has not started
		b.began = at
	}
	if at-b.began < int64(b.o.Duration)*1e9 {
		return nil
	}
	b.ended = at
	r := b.report()
	b.reported += b.messages()
	b.began = at
	b.o.printBandwidth(r)
	return nil
}

// post fills the send queues.
func (b *bandwidthRun) post() error {
	list := b.o.PostList
	for _, q := range b.qps {
		for q.posted < b.iters && q.posted+list <= b.o.TxDepth+q.completed && b.pacer.allows() {
			if list == 1 {
				q.wrs[0].Flags = 0
				if (q.posted+1)%b.o.CQMod == 0 || q.posted == b.iters-1 {
					q.wrs[0].Flags = uverbs.Signaled
				}
			}
			if b.posted != nil {
				b.posted[b.sent] = now()
			}
			if _, err := q.qp.PostSend(q.wrs...); err != nil {
				return err
			}
			for i := range q.wrs {
				b.aim(q, &q.wrs[i])
			}
			q.posted += list
			b.sent += list
			b.pacer.posted(list)
			if b.o.Duration > 0 && b.watchdog.alarm.Load() { // a deep queue does not delay the end
				return nil
			}
		}
	}
	return nil
}

// complete polls the send CQ, and with sleep waits for a completion.
func (b *bandwidthRun) complete(sleep bool) (int, error) {
	n, err := b.poll(b.scq, sleep)
	if err != nil {
		return 0, err
	}
	for i := range b.wcs[:n] {
		wc := &b.wcs[i]
		if err := b.check(wc, false); err != nil {
			return 0, err
		}
		q := b.qps[wc.WRID]
		k := min(b.o.CQMod, b.iters-q.completed) // the last completion covers fewer
		q.completed += k
		b.completed += k
		if b.done != nil {
			b.done[b.completed-1] = now()
		}
		b.watchdog.sample(k)
	}
	return n, nil
}

// poll polls a CQ, and with sleep waits for a completion.
func (b *bandwidthRun) poll(cq *uverbs.CQ, sleep bool) (int, error) {
	if !sleep {
		return cq.Poll(b.wcs)
	}
	b.watchdog.done.Store(int64(b.completed + b.received))
	n, err := cq.PollWait(b.watchdog.ctx, b.wcs)
	return n, b.watchdog.waited(err)
}

// receive receives messages until all have arrived.
func (b *bandwidthRun) receive() error {
	for b.received < b.total {
		n, err := b.poll(b.rcq, b.o.Events)
		if err != nil {
			return err
		}
		if err := b.processReceives(n); err != nil {
			return err
		}
		if err := b.checkWatchdog(); err != nil {
			return err
		}
	}
	return nil
}

// processReceives processes the n receives that were polled.
func (b *bandwidthRun) processReceives(n int) error {
	if n > 0 && b.received == 0 {
		if !b.o.Bidirectional {
			b.began = now()
		}
		if !b.o.active() {
			b.watchdog.startClock(b.o)
		}
	}
	for i := range b.wcs[:n] {
		if err := b.processReceive(&b.wcs[i], b.iters); err != nil {
			return err
		}
		b.received++
		b.watchdog.sample(1)
	}
	return nil
}

// both sends and receives. The server does not send before the client. Receives are
// processed first, because without acknowledgements a message that finds no receive is
// lost.
func (b *bandwidthRun) both() error {
	if b.o.active() {
		b.watchdog.startClock(b.o)
	}
	idle := false
	for b.completed < b.total || b.received < b.total {
		if b.o.active() || b.received > 0 {
			if err := b.post(); err != nil {
				return err
			}
		}
		if b.o.Events && idle {
			if err := b.waitEither(); err != nil {
				return err
			}
		}
		got, err := b.poll(b.rcq, false)
		if err == nil {
			err = b.processReceives(got)
		}
		if err != nil {
			return err
		}
		completed, err := b.complete(false)
		if err != nil {
			return err
		}
		idle = got == 0 && completed == 0
		if err := b.checkWatchdog(); err != nil {
			return err
		}
	}
	return nil
}

// waitEither waits until one of the two CQs has a completion.
func (b *bandwidthRun) waitEither() error {
	b.watchdog.done.Store(int64(b.completed + b.received))
	ctx, cancel := context.WithCancel(b.watchdog.ctx)
	defer cancel()
	other := make(chan error, 1)
	go func() {
		other <- b.scq.Wait(ctx)
		cancel()
	}()
	err := b.rcq.Wait(ctx)
	cancel()
	if e := <-other; e == nil || err == nil {
		return nil
	}
	return b.watchdog.waited(err)
}

// report computes the results.
func (b *bandwidthRun) report() bwReport {
	unit := float64(1 << 20)
	if b.o.Gbits {
		unit = 1e9 / 8
	}
	began, ended := b.began, b.ended
	// not the time of receives, and of waiting for the client
	if b.posted != nil && b.completed == b.total && b.total > 0 {
		began, ended = b.posted[0], b.done[b.total-1]
	}
	n, seconds := float64(b.messages()), float64(ended-began)/1e9
	ways := 1.0
	if b.o.Infinite && b.o.Bidirectional { // the peer does not report its part
		ways = 2
	}
	r := bwReport{size: uint64(b.size), iters: uint64(b.messages())}
	if n == 0 || seconds <= 0 {
		return r
	}
	r.avg = ways * n * float64(b.size) / seconds / unit
	r.rate = ways * n / seconds / 1e6
	if fastest := b.fastest(); fastest > 0 {
		r.peak = float64(b.size) / (fastest / 1e9) / unit
	}
	return r
}

// fastest returns the shortest average time of a message over all sequences of messages
// that begin with a request and end with a completion, which is the inverse of the
// peak. It returns 0 if the peak is not measured.
func (b *bandwidthRun) fastest() float64 {
	if b.posted == nil {
		return 0
	}
	least := math.Inf(1)
	for {
		// Trying all pairs would take minutes for many queue pairs. Each pass finds
		// the sequence that is furthest below the best one so far. A few passes suffice.
		from, to := b.below(min(least, 1e15))
		if from < 0 {
			break
		}
		faster := float64(b.done[to]-b.posted[from]) / float64(to-from+1)
		if faster >= least {
			break
		}
		least = faster
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// below returns the first and last message of the sequence that takes the shortest time
// after limit is subtracted for each message, or -1 if there is none.
func (b *bandwidthRun) below(limit float64) (from, to int) {
	from, to = -1, -1
	first, best := -1, math.Inf(1)
	late := math.Inf(-1) // of the best first request
	for j := range min(b.completed, len(b.done)) {
		if j%b.o.PostList == 0 {
			if v := float64(b.posted[j]) - limit*float64(j); v > late {
				first, late = j, v
			}
		}
		if b.done[j] == 0 {
			continue
		}
		if v := float64(b.done[j]) - limit*float64(j+1) - late; v < best {
			from, to, best = first, j, v
		}
	}
	return from, to
}
