package rdma

// This file has what Handle does with the messages that have arrived, which Recv returns in their order.

// firstArrived returns the index of the first message that has arrived and matches, or -1.
func (c *Conn) firstArrived(match func(m *Message) bool) int {
	for i := range c.count {
		if match(&c.arrived[(c.first+i)%len(c.arrived)]) {
			return i
		}
	}
	return -1
}

// firstRead returns the first message that is complete, or -1.
func (c *Conn) firstRead() int {
	return c.firstArrived(func(m *Message) bool { return m.large == nil || m.large.done })
}

// firstUnread returns the first message that can be read now, or -1. Up to Options.Offers messages are read before
// handlers begin with them.
func (c *Conn) firstUnread() int {
	if c.err != nil || c.closing || c.room() <= 0 || c.fetches >= c.options.Offers || c.readEarly() >= c.options.Offers {
		return -1
	}
	return c.firstArrived(func(m *Message) bool { return m.large != nil && !m.large.begun() })
}

// readEarly returns how many long messages that have arrived are read, or being read.
func (c *Conn) readEarly() (n int) {
	for i := range c.count {
		if in := c.arrived[(c.first+i)%len(c.arrived)].large; in != nil && in.begun() {
			n++
		}
	}
	return n
}

// handleReady reports whether Handle can go on: with a message, or with a READ of one.
func (c *Conn) handleReady() bool {
	switch {
	case c.unreadable != nil:
		return true
	case c.draining:
		return c.handlers == 0 || c.firstRefused() >= 0
	}
	return !c.closing && c.handlers < c.maxHandlers && c.firstRead() >= 0 || c.firstUnread() >= 0
}

// errUnavailable is the error of calls whose handlers do not begin.
var errUnavailable = &CallError{Code: CodeUnavailable,
	Text: "the server is shutting down, and has not begun to handle the call"}

// drain has the calls that receive return ErrShutdown.
func (c *Conn) drain() {
	c.mu.Lock()
	defer c.unlock()
	c.draining = true
}

// isDraining reports whether drain was called.
func (c *Conn) isDraining() bool {
	c.mu.Lock()
	defer c.unlock()
	return c.draining
}

// firstRefused returns the index of the first call that can be refused, or -1. A peer that does not know errors of
// calls learns of the end of the connection only.
func (c *Conn) firstRefused() int {
	if !c.hasTrailers() || c.usable() != nil || c.handlers >= c.maxHandlers+c.options.Depth {
		return -1
	}
	return c.firstArrived(func(m *Message) bool { return m.kind == kindCall && (m.large == nil || !m.large.grows) })
}

// takeRefused removes and drops a call that is to be refused, and reports whether there is one. The caller holds c.mu.
func (c *Conn) takeRefused() (m Message, ok bool) {
	i := c.firstRefused()
	if i < 0 {
		return m, false
	}
	m = c.takeArrived(i)
	c.discard(m)
	m.Buffer, m.large = Buffer{}, nil
	return m, true
}
