package valkeyrdma

import (
	"context"
	"net"
	"os"
	"sync"

	"github.com/goverbs/goverbs/internal/lead"
	"github.com/goverbs/goverbs/uverbs"
)

// Nothing runs in the background of a connection but a timer. A call that waits polls the completion queue itself, or
// sleeps while another does: see package lead.

// A side is one of the three that can wait on a connection: what reads, what writes, and what begins and ends. The
// calls of a side run one at a time.
type side struct {
	lock sync.Mutex // of the call that runs

	// These fields belong to Conn.mu.
	lead.Side
	need   need
	amount uint64 // of what is needed
}

// need is what a call waits for.
type need int

const (
	needNothing   need = iota // but that the connection works
	needData                  // to read
	needSend                  // to send a message of amount bytes
	needControl               // to send a command
	needBuffer                // of the peer
	needCompleted             // of the first amount requests
)

// initWaits sets up the sides. The side that reads comes first if there is no reason for another.
func (c *Conn) initWaits() {
	c.leaderDone.L = &c.mu
	c.waiters = lead.Waiters{Lock: c.mu.Lock, Unlock: c.unlock, Poll: c.pollWait, Handle: c.handle,
		Ready: func(i int) bool { return c.ready(c.sides()[i]) }}
	for i, s := range c.sides() {
		s.Waiters, s.Need, s.Turn = &c.waiters, i, uint64(i)
	}
}

// ready reports whether the call of s can go on. The caller holds c.mu.
func (c *Conn) ready(s *side) bool {
	if c.err != nil {
		return true
	}
	switch s.need {
	case needNothing:
		return true
	case needData:
		return c.filled > c.pos
	case needSend:
		return c.sendable(int(s.amount))
	case needControl:
		return c.controllable()
	case needBuffer:
		return c.target.length > 0
	case needCompleted:
		return c.done >= s.amount
	}
	return false
}

// wait waits until s has what it needs, or the connection has failed, and then returns nil. It returns an error if the
// deadline of s has passed, the connection was closed, or ctx has ended. The caller holds c.mu, and releases it with
// c.unlock.
func (c *Conn) wait(ctx context.Context, s *side, n need, amount uint64) error {
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
			if err := c.waiters.Wait(ctx, &s.Waiter); err != nil { // that of ctx: handle returns none
				return err
			}
		}
	}
}

// unlock releases c.mu at the end of a call, or before it waits.
func (c *Conn) unlock() {
	c.waiters.Pass()
	disconnect := c.disconnect
	c.disconnect = false
	c.mu.Unlock()
	if disconnect {
		c.tellPeer()
	}
}

// dismiss returns when no call uses the CQ and the memory any more. The caller holds c.mu, has set c.closed, and has
// woken the calls.
func (c *Conn) dismiss() {
	for c.waiters.Leader() != nil {
		c.waiters.Interrupt(c.waiters.Leader())
		c.leaderDone.Wait()
	}
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
	for left := peerReceives + sends; left > 0 && c.waiters.Leader() == nil && c.poll(); {
		left -= batch
	}
}

func (c *Conn) pollWait(ctx context.Context) (int, error) { return c.cq.PollWait(ctx, c.wcs[:]) }

// handle handles n completions, and an error of polling, which ends the connection. The caller holds c.mu.
func (c *Conn) handle(n int, err error) error {
	arrived, flushed := 0, false
	for i := range c.wcs[:n] {
		wc := &c.wcs[i]
		switch {
		case wc.Status == uverbs.WCLocLenErr && wc.WRID&receiveID != 0:
			c.fail(errLongCommand)
		case wc.Status == uverbs.WCWRFlushErr: // one that says why may follow
			flushed = true
		case wc.Status != uverbs.WCSuccess:
			c.fail(wc.Status)
		case wc.WRID&receiveID != 0:
			c.slots[arrived] = wc.WRID &^ receiveID
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
	if arrived > 0 && c.err == nil {
		if err := c.postReceives(arrived); err != nil {
			c.fail(err)
		}
	}
	c.sendOwed()
	c.leaderDone.Broadcast()
	return nil
}
