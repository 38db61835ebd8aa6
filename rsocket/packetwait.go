package rsocket

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/lead"
	"github.com/goverbs/goverbs/uverbs"
)

// A packetSide is the side that reads or the one that writes. Its calls run one at a time.
type packetSide struct {
	lock sync.Mutex // of the call that runs

	// These fields belong to PacketConn.mu.
	lead.Side
	waiters lead.Waiters // the call of this side: the two wait on different CQs
}

func (p *PacketConn) sides() [2]*packetSide { return [...]*packetSide{&p.reader, &p.writer} }

// initWaits sets up the sides.
func (p *PacketConn) initWaits() {
	for _, s := range p.sides() {
		w := &s.waiters
		s.Waiters = w
		w.Lock, w.Unlock = p.mu.Lock, p.mu.Unlock // there is no waiter to pass to
		w.Poll = func(ctx context.Context) (int, error) { return 0, w.CQ.(*uverbs.CQ).Wait(ctx) }
		w.Handle = func(_ int, err error) error { return err }
	}
}

// check returns why a call of s cannot go on. The caller holds p.mu.
func (p *PacketConn) check(s *packetSide) error {
	switch {
	case p.closed:
		return net.ErrClosed
	case s.Expired:
		return os.ErrDeadlineExceeded
	}
	return p.err
}

// sleep waits for a completion of a CQ, or without one, until the call of s is interrupted. The caller holds p.mu, and
// has found no reason to go on. sleep unlocks it.
func (p *PacketConn) sleep(s *packetSide, cq any) error {
	defer p.mu.Unlock()
	s.waiters.CQ = cq
	return s.waiters.Wait(context.Background(), &s.Waiter)
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
		err := q.recvCQ.Wait(p.ctx)
		p.mu.Lock()
		if !p.closed {
			p.fail(err)
		}
		p.reader.Interrupt()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// fail ends all calls with err, unless it is nil. The caller holds p.mu.
func (p *PacketConn) fail(err error) {
	if err == nil || p.err != nil {
		return
	}
	p.err = err
	p.reader.Interrupt()
	p.writer.Interrupt()
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
	s.SetDeadline(t)
	return nil
}
