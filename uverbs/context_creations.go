package uverbs

import "sync"

// creations counts the objects that are being created and the advice that is being given. The
// Context is closed when there are none. A creation may begin during another one: the Alloc of a
// parent domain may create objects.
type creations struct {
	mu     sync.Mutex
	n      int
	closed bool      // no more creations may begin
	none   sync.Cond // n is 0
}

// begin counts a creation that ends with end. It reports whether the creation may begin.
func (c *creations) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.n++
	return true
}

func (c *creations) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 {
		c.none.Broadcast()
	}
}

// stop lets no more creations begin, and waits for the end of those that have begun.
func (c *creations) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.n > 0 {
		c.none.Wait()
	}
}

// stopWhile lets no more creations begin once there are none. Until then others may begin. It
// reports whether idle has returned true all the time.
func (c *creations) stopWhile(idle func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for idle() {
		if c.n == 0 {
			c.closed = true
			return true
		}
		c.none.Wait()
	}
	return false
}
