package rsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

// A packetSide is what reads or what writes. Its calls run one at a time.
type packetSide struct {
	lock sync.Mutex    // of the call that runs
	wake chan struct{} // ends the sleep of a call without a CQ

	// These fields belong to PacketConn.mu.
	asleep      bool
	cq          *uverbs.CQ // that the call waits on, or nil
	interrupted bool       // the call was woken to look at the state
	deadline    time.Time
	timer       *time.Timer
	expired     bool // the deadline has passed
}

// check returns why a call of s cannot go on. The caller holds p.mu.
func (p *PacketConn) check(s *packetSide) error {
	switch {
	case p.closed:
		return net.ErrClosed
	case s.expired:
		return os.ErrDeadlineExceeded
	}
	return p.err
}

// sleep waits for a completion of a QP's CQ, or without a QP, until the call of s is interrupted. The caller holds
// p.mu, and has found no reason to go on. sleep unlocks it.
func (p *PacketConn) sleep(s *packetSide, q *packetQP, cq *uverbs.CQ) error {
	s.asleep, s.cq = true, cq
	p.mu.Unlock()
	var err error
	if cq != nil {
		err = cq.Wait(context.Background()) // ends by interrupt
	} else {
		<-s.wake
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.asleep = false
	if s.interrupted && cq != nil {
		verbs.EndWaits(cq, q.id.Err()) // which the interrupt has replaced
	}
	s.interrupted = false
	if err == errInterrupted {
		err = nil
	}
	return err
}

// errInterrupted ends the wait of a call.
var errInterrupted = errors.New("rsocket: interrupted")

// interrupt makes a call of s that sleeps look at the state. The caller holds p.mu.
func (p *PacketConn) interrupt(s *packetSide) {
	switch {
	case !s.asleep || s.interrupted:
		return
	case s.cq != nil:
		verbs.EndWaits(s.cq, errInterrupted)
	default:
		s.wake <- struct{}{}
	}
	s.interrupted = true
}

// watch wakes the reader if a QP has received something, for all but the first QP: the reader waits for that one
// itself.
func (p *PacketConn) watch(q *packetQP) {
	for {
		select {
		case <-q.kick:
		case <-p.ctx.Done():
			return
		}
		if q.recvCQ.Wait(p.ctx) != nil {
			return // closed, or the reader will find the error
		}
		p.mu.Lock()
		p.interrupt(&p.reader)
		p.mu.Unlock()
	}
}

// fail ends all calls with err, unless it is nil. The caller holds p.mu.
func (p *PacketConn) fail(err error) {
	if err == nil || p.err != nil {
		return
	}
	p.err = err
	p.interrupt(&p.reader)
	p.interrupt(&p.writer)
}

// SetDeadline sets the deadlines of reads and of writes.
func (p *PacketConn) SetDeadline(t time.Time) error {
	if err := p.SetReadDeadline(t); err != nil {
		return err
	}
	return p.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of the calls that read, also of those that wait. They return an error that
// matches [os.ErrDeadlineExceeded] after it. The zero time stands for none. It returns an error that matches
// [net.ErrClosed] after Close.
func (p *PacketConn) SetReadDeadline(t time.Time) error { return p.setDeadline(&p.reader, t) }

// SetWriteDeadline sets the deadline of the calls that write, which wait while the send queue is full: see
// [PacketConn.SetReadDeadline].
func (p *PacketConn) SetWriteDeadline(t time.Time) error { return p.setDeadline(&p.writer, t) }

func (p *PacketConn) setDeadline(s *packetSide, t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.opError("set", net.ErrClosed)
	}
	s.deadline, s.expired = t, false
	if s.timer != nil {
		s.timer.Stop() // or it runs, and finds another deadline
	}
	switch d := time.Until(t); {
	case t.IsZero():
	case d <= 0:
		s.expired = true
		p.interrupt(s)
	case s.timer == nil:
		s.timer = time.AfterFunc(d, func() { p.expire(s) })
	default:
		s.timer.Reset(d)
	}
	return nil
}

// expire ends the call of s if its deadline has passed.
func (p *PacketConn) expire(s *packetSide) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.deadline.IsZero() && time.Until(s.deadline) <= 0 {
		s.expired = true
		p.interrupt(s)
	}
}
