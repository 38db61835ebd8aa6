package rsocket

import (
	"context"
	"net"
	"os"
	"sync"

	"github.com/goverbs/goverbs/internal/lead"
	"github.com/goverbs/goverbs/uverbs"
)

// Nothing runs in the background of a connection. A call that waits polls the completion queue itself, or sleeps while
// another does: see package lead.

// A side is one of the three that can wait on a connection: what reads, what writes, and what ends. The calls of
// a side run one at a time.
type side struct {
	lock sync.Mutex // of the call that runs

	// These fields belong to Conn.mu.
	lead.Side
	need   need
	amount uint64 // of what is needed
}

// initWaits sets up the sides. The side that reads comes first if there is no reason for another.
func (c *Conn) initWaits() {
	w := &c.waiters
	w.Lock, w.Unlock, w.Poll, w.Handle = c.mu.Lock, c.unlock, c.pollWait, c.handle
	w.Ready = func(i int) bool { return c.ready(c.sides()[i]) }
	for i, s := range c.sides() {
		s.Waiters, s.Need, s.Turn = w, i, uint64(i)
	}
}

// need is what a call waits for.
type need int

const (
	needNothing   need = iota // but that the connection works
	needData                  // to read
	needSend                  // to send amount bytes
	needRoom                  // to write amount bytes to a mapping
	needMapping               // to send a mapping
	needControl               // to send a control message
	needCompleted             // of the first amount requests
	needReceived              // by the peer, of the first amount requests, unless it does not receive any more
)

// ready reports whether the call of s can go on. The caller holds c.mu.
func (c *Conn) ready(s *side) bool {
	switch s.need {
	case needNothing:
		return true
	case needData:
		return c.available > 0 || c.readError() != nil
	case needSend:
		return c.writeError() != nil || c.sendable(int(s.amount))
	case needRoom:
		return c.writeError() != nil || c.writable(int(s.amount))
	case needMapping:
		return c.writeError() != nil || c.credited() && c.controls < maxControls
	case needControl:
		return c.err != nil || c.controls < maxControls
	case needCompleted:
		return c.err != nil || c.done >= s.amount
	default:
		return c.err != nil || c.done >= s.amount || c.peerClosed
	}
}

// wait waits until s has what it needs. It returns an error if the deadline of s has passed, or the connection was
// closed. The caller holds c.mu, and releases it with c.unlock.
func (c *Conn) wait(s *side, n need, amount uint64) error {
	s.need, s.amount = n, amount
	for {
		switch {
		case c.closed && s != &c.ender:
			return net.ErrClosed
		case s.Expired:
			return os.ErrDeadlineExceeded
		case c.ready(s):
			return nil
		case c.waiters.Leader() == nil && c.poll():
			// The timer of a deadline and Close have their turn, even if a peer sends without end.
			c.waiters.Relock()
		default:
			_ = c.waiters.Wait(context.Background(), &s.Waiter) // handle returns no error
		}
	}
}

// unlock releases c.mu at the end of a call.
func (c *Conn) unlock() {
	c.waiters.Pass()
	c.mu.Unlock()
}

// poll handles the completions that there are, and reports whether there were any. The caller holds c.mu, and
// there is no leader.
func (c *Conn) poll() bool {
	n, err := c.cq.Poll(c.wcs[:])
	_ = c.handle(n, err)
	return n > 0
}

// pollAll handles what had arrived when it was called, unless there is a leader. The caller holds c.mu.
func (c *Conn) pollAll() {
	for left := c.credits + controlReceives + c.sends; left > 0 && c.waiters.Leader() == nil && c.poll(); {
		left -= len(c.wcs)
	}
}

func (c *Conn) pollWait(ctx context.Context) (int, error) { return c.cq.PollWait(ctx, c.wcs[:]) }

// handle handles n completions, and an error of polling, which ends the connection. The caller holds c.mu.
func (c *Conn) handle(n int, err error) error {
	arrived, flushed := 0, false
	for i := range c.wcs[:n] {
		wc := &c.wcs[i]
		switch {
		case wc.Status == uverbs.WCLocLenErr && wc.WRID == receiveID: // SEND with data
			c.fail(errUnknown)
		case wc.Status == uverbs.WCWRFlushErr: // one that says why may follow
			flushed = true
		case wc.Status != uverbs.WCSuccess:
			c.fail(wc.Status)
		case wc.WRID == receiveID:
			arrived++
			c.receive(wc)
		default:
			c.complete(wc.WRID)
		}
	}
	if flushed {
		c.fail(uverbs.WCWRFlushErr)
	}
	if err != nil {
		c.fail(err)
	}
	c.repost(arrived)
	c.grant()
	return nil
}
