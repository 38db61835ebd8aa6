package rdma

// later has f called when c.mu is released. The caller holds c.mu.
func (h *hooks) later(f func()) { h.queued = append(h.queued, f) }

// runHooks calls what is queued, unless another goroutine does. The caller holds c.mu.
func (c *Conn) runHooks() {
	if c.running || c.starting {
		return
	}
	c.running = true
	for len(c.queued) > 0 {
		f := c.queued[0]
		c.queued = c.queued[1:]
		c.withoutLock(f)
	}
	c.queued, c.running = nil, false
}

func (c *Conn) withoutLock(f func()) {
	c.mu.Unlock()
	returned := false
	defer func() {
		c.mu.Lock()
		if !returned { // f panics, and no caller unlocks
			c.running = false
			c.mu.Unlock()
		}
	}()
	f()
	returned = true
}
