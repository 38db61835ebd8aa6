package uverbs

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// An Object is an object of a [Context], such as a [PD], a [CQ] or an [XRCD].
type Object interface{ asObject() *object }

func (o *object) asObject() *object { return o }

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

// CloseIdle closes c if no objects except the given ones exist on it. Otherwise it closes
// nothing and returns [ErrBusy]. It is for packages that open a device and allocate a PD on
// behalf of others. It waits until objects that are being created are finished. For an AH whose
// neighbor does not reply that takes seconds: if the caller holds a lock meanwhile, other users
// of the lock wait too.
func (c *Context) CloseIdle(but ...Object) error {
	if !c.creating.stopWhile(func() bool { return !c.inUse(but) }) {
		return &Error{Op: "close", Object: c.name, Kind: ErrBusy, Errno: unix.EBUSY, Detail: "objects live on it: close them first"}
	}
	return c.Close()
}

// OnIdle makes c call f whenever the last object except the given ones has been closed. f runs
// in the goroutine that closed the object, and that Close returns f's error. f is not called
// while c is being closed. f may call CloseIdle. A nil f removes the previous one.
func (c *Context) OnIdle(f func() error, but ...Object) {
	if f == nil {
		c.idle.Store(nil)
		return
	}
	c.idle.Store(&idleHook{f, but})
}

type idleHook struct {
	f   func() error
	but []Object
}

// idled calls the hook after an object was closed, if no other object is left.
func (c *Context) idled(closing error) error {
	h := c.idle.Load()
	if h == nil || closing != nil || c.inUse(h.but) {
		return closing
	}
	return errors.Join(closing, h.f())
}

// inUse reports whether there are objects except the given ones and the channel that CQs share.
func (c *Context) inUse(but []Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.objects.all {
		shared := c.channel != nil && o == &c.channel.object
		if !shared && !slices.ContainsFunc(but, func(b Object) bool { return o == b.asObject() }) {
			return true
		}
	}
	return false
}
