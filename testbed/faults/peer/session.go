package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/testbed/faults"
	"github.com/goverbs/goverbs/uverbs"
)

// A session is the exchange over one connection. It must not be used concurrently.
type session struct {
	*peer
	line   line
	remote hello
	poll   func(context.Context, []uverbs.WC) (int, error)
	fail   func() error // moves the QP to ERR

	out           int // outstanding requests in the send queue
	nextRound     uint64
	sentDone      bool
	done          bool // Done has completed
	receivedDone  bool
	arrived       int  // messages
	posted        int  // receives that have not completed
	disconnected  bool // the other end has disconnected
	draining      bool
	reportedQuiet bool
	err           error
	wcs           [16]uverbs.WC
}

func newSession(p *peer, l line) *session {
	q := l.queues()
	return &session{peer: p, line: l, remote: l.remoteHello(), poll: q.cq.PollWait, posted: receives, nextRound: p.checked,
		fail: func() error { return q.qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState) }}
}

// quietAfter is the time without a completion after which a Quiet event is printed.
const quietAfter = time.Second

// finished reports whether the session has finished. The completion of this end's Done
// may be missing: if the other end has sent Done, it has everything, and may have
// disconnected.
func (s *session) finished() bool {
	return s.receivedDone && (s.done || s.sentDone && (s.err != nil || s.disconnected))
}

// run exchanges messages until both ends have finished, and returns the error that
// prevented it.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.line.disconnected():
			cancel(errGone)
		case <-stop:
		}
	}()
	for !s.finished() {
		if err := s.post(); err != nil {
			return err
		}
		err := s.await(ctx, s.timeout())
		s.disconnected = errors.Is(err, errGone)
		switch {
		case s.finished():
			return nil
		case err != nil:
			return err
		case s.err != nil:
			return s.err
		}
	}
	return nil
}

// timeout returns the maximum time without a completion. An end that has finished waits
// for the other's Done without a limit.
func (s *session) timeout() time.Duration {
	if s.out == 0 {
		return s.options.limit
	}
	return s.options.stall
}

// await waits for at least one completion and processes all that are available.
func (s *session) await(ctx context.Context, limit time.Duration) error {
	began := time.Now()
	for {
		turn, cancel := context.WithTimeout(ctx, min(quietAfter, limit))
		n, err := s.poll(turn, s.wcs[:])
		cancel()
		waited := time.Since(began)
		if s.out > 0 {
			s.account.QuietMS = max(s.account.QuietMS, waited.Milliseconds())
		}
		if n > 0 {
			if s.reportedQuiet {
				s.reportedQuiet = false
				say(faults.Event{Event: faults.Awake})
			}
			return s.process(s.wcs[:n])
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		case waited >= limit:
			return fmt.Errorf("no completion for %v with %d outstanding requests", waited.Round(time.Millisecond), s.out)
		case !s.reportedQuiet:
			s.reportedQuiet = true
			say(faults.Event{Event: faults.Quiet})
		}
	}
}

// post fills the windows.
func (s *session) post() error {
	n := uint64(s.options.messages)
	for s.next < n && s.next < s.acked+window {
		i := int(s.next % window)
		length := faults.Message{Run: s.number, Kind: s.options.sends, Seq: s.next}.Write(s.slot(sendAt + i))
		if err := s.send(uverbs.SendWR{WRID: id(sendAt, i), Opcode: uverbs.OpSend,
			SGL: []uverbs.SGE{s.sge(sendAt+i, length)}}); err != nil {
			return err
		}
		s.next++
	}
	for s.nextRound < n && s.nextRound < s.checked+rounds {
		if err := s.postRound(int(s.nextRound % rounds)); err != nil {
			return err
		}
		s.nextRound++
	}
	if !s.sentDone && s.acked == n && s.checked == n {
		s.sentDone = true
		length := faults.Message{Run: s.number, Kind: faults.Done, Seq: n}.Write(s.slot(doneAt))
		return s.send(uverbs.SendWR{WRID: id(doneAt, 0), Opcode: uverbs.OpSend, SGL: []uverbs.SGE{s.sge(doneAt, length)}})
	}
	return nil
}

// postRound posts a WRITE of a message into the peer's memory and a READ of it.
func (s *session) postRound(i int) error {
	length := s.round(s.nextRound).Write(s.slot(roundAt + i))
	clear(s.slot(landingAt + i))
	to := s.remote.Addr + uint64(i*slot)
	err := s.send(uverbs.SendWR{WRID: id(roundAt, i), Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{s.sge(roundAt+i, length)},
		RemoteAddr: to, RKey: s.remote.RKey})
	if err != nil {
		return err
	}
	return s.send(uverbs.SendWR{WRID: id(landingAt, i), Opcode: uverbs.OpRead,
		SGL: []uverbs.SGE{s.sge(landingAt+i, length)}, RemoteAddr: to, RKey: s.remote.RKey})
}

func (s *session) round(seq uint64) faults.Message {
	m := faults.Message{Run: s.number, Kind: faults.Round, Seq: seq}
	if s.options.long {
		m.Kind = faults.LongRound
	}
	return m
}

func (s *session) send(wr uverbs.SendWR) error {
	wr.Flags = uverbs.Signaled
	if _, err := s.line.queues().qp.PostSend(wr); err != nil {
		return err
	}
	s.out++
	s.account.Posted++
	return nil
}

// process processes completions.
func (s *session) process(wcs []uverbs.WC) error {
	var err error
	for i := range wcs {
		wc := &wcs[i]
		part, n := int(wc.WRID>>32), int(uint32(wc.WRID))
		if wc.Status != uverbs.WCSuccess && s.err == nil {
			s.err = wc.Err() // those after it are flushed
		}
		switch {
		case part == recvAt && wc.Status != uverbs.WCSuccess:
			s.posted--
		case part == recvAt:
			s.posted--
			s.received(s.slot(recvAt + n)[:wc.ByteLen])
			if !s.draining {
				err = errors.Join(err, s.receive(s.line.queues().qp, n))
				s.posted++
			}
		case wc.Status != uverbs.WCSuccess:
			s.out--
			s.account.Failed++
			s.account.Statuses[wc.Status.Error()]++
		default:
			s.out--
			s.account.Completed++
			s.sent(part, n)
		}
	}
	return err
}

// sent records that a request has completed.
func (s *session) sent(part, n int) {
	switch part {
	case sendAt:
		s.account.Sent++
		s.acked++
	case doneAt:
		s.done = true
	case landingAt:
		m := s.round(s.checked)
		got, err := faults.Read(s.slot(landingAt + n)[:m.Len()])
		if err != nil || got != m {
			s.account.Corrupt++
			s.wrong("round %d returned %v, %v", m.Seq, got, err)
		} else {
			s.account.Rounds++
		}
		s.checked++
	}
}

// received checks a message.
func (s *session) received(b []byte) {
	m, err := faults.Read(b)
	s.arrived++
	switch {
	case err != nil || m.Run != s.remote.Run:
		s.account.Corrupt++
		s.wrong("corrupt message: %v", err)
		return
	case m.Seq < s.expected:
		s.account.Duplicates++
		s.wrong("message %d is a duplicate: want %d", m.Seq, s.expected)
		return
	case m.Seq > s.expected:
		s.account.Lost += int(m.Seq - s.expected)
		s.wrong("message %d is out of order: want %d", m.Seq, s.expected)
	}
	if m.Kind == faults.Done {
		s.receivedDone = true
		return
	}
	s.account.Received++
	s.expected = m.Seq + 1
}

// wrong reports something that no fault excuses.
func (s *session) wrong(format string, args ...any) {
	say(faults.Event{Event: faults.Wrong, Text: fmt.Sprintf(format, args...) +
		fmt.Sprintf(", as number %d of the session", s.arrived)})
}

// The time for requests of a broken session to fail by themselves, and then after the QP
// was moved to ERR.
const (
	ownTime = 10 * time.Second
	errTime = 5 * time.Second
)

// drain waits for the requests that are left in the queues of a finished or broken
// session. Every request must complete.
func (s *session) drain(why error) error {
	if why == nil && s.out == 0 {
		return nil
	}
	s.draining = true
	ctx := context.Background()
	if s.disconnected || s.err != nil || errors.Is(why, errGone) {
		deadline := time.Now().Add(ownTime)
		for s.out > 0 && time.Now().Before(deadline) {
			if s.await(ctx, time.Until(deadline)) != nil {
				break
			}
		}
	} else if s.out > 0 {
		s.account.Stalls++
	}
	s.account.Forced += s.out
	if err := s.fail(); err != nil {
		return err
	}
	deadline := time.Now().Add(errTime)
	for s.out+s.posted > 0 && time.Now().Before(deadline) {
		if s.await(ctx, time.Until(deadline)) != nil {
			break
		}
	}
	s.account.Unreported += s.out
	s.account.Unflushed += s.posted
	return nil
}
