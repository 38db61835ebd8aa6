package rdma

import (
	"errors"

	"github.com/goverbs/goverbs/uverbs"
)

// This file has what a connection does with shared receives.

// joinShared joins the receives of the listener, if it has some.
func (c *Conn) joinShared() (err error) {
	if c.sharing != nil {
		c.shared, err = c.sharing.join(c)
	}
	return err
}

// initShared prepares for messages in shared receives. A peer that does not know windows gets the guaranteed credits
// only.
func (c *Conn) initShared() error {
	f, depth := &c.messages, c.options.Depth
	f.receives = guaranteed(depth)
	f.granted = f.receives
	if c.remote.features&featureWindow != 0 {
		f.withheld = depth - f.receives
	}
	c.slots, c.arrived = c.shared.slots, make([]Message, f.receives+f.withheld)
	c.starting = true // Trace.Connected comes first
	return c.account.tryFixed(int64(f.receives * c.options.receiveLen()))
}

// rnrTimer is how long a peer whose SEND finds no receive waits before it repeats it: the code of 0.64 ms. That of the
// connection manager stands for 0.66 s.
const rnrTimer = 12

// hello returns what this side has said.
func (c *Conn) hello() *hello {
	if c.sharing != nil {
		return c.sharing.options.hello()
	}
	h := c.options.hello()
	return &h
}

// setTimer sets rnrTimer.
func (c *Conn) setTimer() error {
	if c.shared == nil {
		return nil
	}
	err := c.qp.Modify(uverbs.QPAttr{MinRNRTimer: rnrTimer}, uverbs.MaskMinRNRTimer)
	if c.cm.Err() != nil {
		return nil // the connection has ended, which its calls return
	}
	return err
}

// startShared ends the time in which only the sweeper handles what arrives.
func (c *Conn) startShared() {
	if c.shared == nil {
		return
	}
	c.mu.Lock()
	defer c.unlock()
	c.starting = false
	if c.failure != nil {
		c.decide()
	}
}

// leaveShared leaves the receives. A call after one that has failed tries again.
func (c *Conn) leaveShared() error {
	if c.shared == nil || c.left {
		return nil
	}
	c.mu.Lock()
	widened := c.widened
	c.widened = 0
	c.mu.Unlock()
	c.account.release(widened)
	if errors.Is(c.cm.Err(), uverbs.ErrDeviceGone) { // of an idle connection, nobody else has noticed
		c.shared.gone.Store(true)
	}
	err := c.sharing.leave(c.shared)
	c.left = err == nil
	return err
}

// drainShared posts the receives of completions that were not handled, when the QP no longer exists.
func (c *Conn) drainShared() {
	if c.shared == nil || c.left {
		return
	}
	c.shared.remove(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cq != nil {
		c.returnReceives()
	}
}

// returnReceives posts the receives of completions that are not handled any more. It returns how many completions there
// were.
func (c *Conn) returnReceives() (found int) {
	for {
		n, err := c.cq.Poll(c.wcs[:])
		if n == 0 || err != nil {
			return found
		}
		found += n
		for i := range n {
			wc := &c.wcs[i]
			if wc.WRID&recvBit == 0 {
				c.requestDone(wc)
				continue
			}
			c.shared.posted.Add(-1)
			c.giveShared(&c.slots[wc.WRID&^recvBit])
		}
	}
}

const noSlot = -1

// giveShared posts a shared receive again, or keeps the memory of a copy.
func (c *Conn) giveShared(m *memory) {
	if m.mr == nil {
		m.shared.putSpare(m)
		return
	}
	if m.slot == c.inHand {
		c.inHand = noSlot
	}
	err := m.shared.post(m)
	if err == nil || c.err != nil || c.failure != nil || c.closing { // the receives may be closed
		return
	}
	c.fail(err)
}

// takeShared returns the memory of a message of n bytes for the program: the receive m that it is in, or a copy.
func (c *Conn) takeShared(m *memory, n int) *memory {
	s := m.shared
	if m.mr != nil && s.held.Add(1) > int64(len(s.slots)/2) {
		s.unhold(m.mr)
		m = c.copyShared(m, n)
	}
	m.owner = c
	c.widen() // the program may release it late, or wait for others
	return m
}

// copyShared copies n bytes out of a receive, and posts it again.
func (c *Conn) copyShared(m *memory, n int) *memory {
	to := m.shared.getSpare()
	copy(to.bytes, m.bytes[:n])
	to.reply = m.reply
	c.giveShared(m)
	return to
}

// releaseShared posts a receive again that the program has released.
func (c *Conn) releaseShared(m *memory) {
	c.mu.Lock()
	defer c.unlock()
	s, reply := m.shared, m.reply
	if m.mr != nil {
		defer s.unhold(m.mr)
	}
	c.giveShared(m)
	switch {
	case reply:
		c.replies.owed++
	case s.short.Load() && c.narrow():
	default:
		c.owe()
	}
	c.sendControl(true)
}

// widen gives the peer more credits if it has used all that it had, and receives and memory are at hand. The program
// has received a message.
func (c *Conn) widen() {
	f := &c.messages
	if f.withheld == 0 || f.granted > 0 || c.shared.short.Load() || c.usable() != nil {
		return
	}
	n := min(f.receives, f.withheld)
	bytes := int64(n * c.options.receiveLen())
	if !c.account.tryWiden(bytes) {
		return
	}
	c.widened += bytes
	f.receives, f.withheld, f.owed = f.receives+n, f.withheld-n, f.owed+n
	c.control.credits = true
}

// narrow withholds the credit of a message that was released. It reports whether the peer has had more than the
// guaranteed credits.
func (c *Conn) narrow() bool {
	f, bytes := &c.messages, int64(c.options.receiveLen())
	if c.widened < bytes {
		return false
	}
	c.widened -= bytes
	f.receives, f.withheld = f.receives-1, f.withheld+1
	c.account.release(bytes)
	if f.owed > 0 {
		c.checkOwed()
	}
	return true
}

// sweep handles what has arrived if no call does, and moves messages that the program has not received out of shared
// receives. It returns how much it has found.
func (c *Conn) sweep() (found int) {
	c.mu.Lock()
	defer c.unlock()
	if c.waiters.Leader() == nil {
		found = c.collect()
	}
	for i := range c.count {
		found += c.move(&c.arrived[(c.first+i)%len(c.arrived)])
	}
	for _, k := range c.calls.all {
		if k.waiting && k.replied {
			found += c.move(&k.m)
		}
	}
	return found
}

// collect handles what has completed. No goroutine polls.
func (c *Conn) collect() (found int) {
	if c.err != nil {
		return c.returnReceives()
	}
	c.handling = true
	for c.err == nil {
		n, err := c.cq.Poll(c.wcs[:])
		if n == 0 || err != nil {
			break
		}
		c.handle(c.wcs[:n])
		found += n
	}
	c.handling = false
	if c.failure != nil && !c.starting {
		c.decide()
	}
	return found
}

// move moves a message out of its shared receive. It returns 1 if it has.
func (c *Conn) move(m *Message) int {
	from := m.Buffer.m
	if m.large != nil || from == nil || from.shared == nil || from.mr == nil {
		return 0
	}
	n := m.n
	if m.write {
		n = 0
	}
	m.Buffer.m = c.copyShared(from, n)
	return 1
}
