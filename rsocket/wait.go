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

// Nothing runs in the background of a connection. A call that waits polls the completion queue itself: it is the
// leader. It handles the completions for all calls. Others that wait meanwhile sleep until the leader wakes
// them, because they can go on, or because it returns and one of them must be the leader. A call thus usually
// finds its own completion without a change of goroutine.

// A side is one of the three that can wait on a connection: what reads, what writes, and what ends. The calls of
// a side run one at a time.
type side struct {
	lock sync.Mutex // of the call that runs

	// These fields belong to Conn.mu.
	waiting  bool // sleeps until wake
	wake     chan struct{}
	need     need
	amount   uint64 // of what is needed
	deadline time.Time
	timer    *time.Timer
	expired  bool // the deadline has passed
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
		case s.expired:
			return os.ErrDeadlineExceeded
		case c.ready(s):
			return nil
		case c.leader != nil:
			s.waiting = true
			c.mu.Unlock()
			<-s.wake
			c.mu.Lock()
		case !c.poll():
			c.lead(s)
		default:
			// The timer of a deadline and Close have their turn, even if a peer sends without end.
			c.mu.Unlock()
			c.mu.Lock()
		}
	}
}

// unlock releases c.mu at the end of a call. If calls wait and none of them is the leader, it wakes one.
func (c *Conn) unlock() {
	if c.leader == nil {
		for _, s := range c.sides() {
			if s.waiting {
				s.rouse()
				break
			}
		}
	}
	c.mu.Unlock()
}

// rouse wakes the call of s, which waits.
func (s *side) rouse() {
	s.waiting = false
	s.wake <- struct{}{}
}

// poll handles the completions that there are, and reports whether there were any. The caller holds c.mu, and
// there is no leader.
func (c *Conn) poll() bool {
	n, err := c.cq.Poll(c.wcs[:])
	c.handle(c.wcs[:n], err)
	return n > 0
}

// pollAll handles what had arrived when it was called, unless there is a leader. The caller holds c.mu.
func (c *Conn) pollAll() {
	for left := c.credits + controlReceives + c.sends; left > 0 && c.leader == nil && c.poll(); {
		left -= len(c.wcs)
	}
}

// lead waits for completions and handles them.
func (c *Conn) lead(s *side) {
	c.leader = s
	c.mu.Unlock()
	n, err := c.spin()
	if n == 0 && err == nil {
		n, err = c.cq.PollWait(context.Background(), c.wcs[:]) // ends by interrupt
	}
	c.mu.Lock()
	c.leader = nil
	if c.interrupted.Swap(false) {
		verbs.EndWaits(c.cq, c.cm.Err()) // which an interrupt has replaced
	}
	if err == errInterrupted {
		err = nil
	}
	c.handle(c.wcs[:n], err)
}

// spin polls for as long as the configuration says.
func (c *Conn) spin() (int, error) {
	if c.config.Polling == 0 {
		return 0, nil
	}
	for start := time.Now(); ; {
		n, err := c.cq.Poll(c.wcs[:])
		if n > 0 || err != nil || c.interrupted.Load() || time.Since(start) >= c.config.Polling {
			return n, err
		}
	}
}

// errInterrupted ends the wait of the leader.
var errInterrupted = errors.New("rsocket: interrupted")

// interrupt makes the call of s look at the state. The caller holds c.mu.
func (c *Conn) interrupt(s *side) {
	switch {
	case s.waiting:
		s.rouse()
	case c.leader == s && !c.interrupted.Swap(true):
		verbs.EndWaits(c.cq, errInterrupted)
	}
}

// handle handles completions, and an error of polling. The caller holds c.mu.
func (c *Conn) handle(wcs []uverbs.WC, err error) {
	arrived, flushed := 0, false
	for i := range wcs {
		wc := &wcs[i]
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
	for _, s := range c.sides() {
		if s.waiting && c.ready(s) {
			s.rouse()
		}
	}
}

// setTimer sets the deadline of s. The caller holds c.mu.
func (c *Conn) setTimer(s *side, t time.Time) {
	s.deadline, s.expired = t, false
	if s.timer != nil {
		s.timer.Stop() // or it runs, and finds another deadline
	}
	if t.IsZero() {
		return
	}
	d := time.Until(t)
	if d <= 0 {
		s.expired = true
		c.interrupt(s)
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(d, func() { c.expire(s) })
	} else {
		s.timer.Reset(d)
	}
}

// expire ends the call of s if its deadline has passed.
func (c *Conn) expire(s *side) {
	c.mu.Lock()
	defer c.unlock()
	if !s.deadline.IsZero() && time.Until(s.deadline) <= 0 {
		s.expired = true
		c.interrupt(s)
	}
}
