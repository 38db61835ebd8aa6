package uverbs

import "golang.org/x/sys/unix"

// CloseIdle closes c if no objects except the given ones exist on it. Otherwise it closes
// nothing and returns [ErrBusy]. It is for packages that open a device and allocate a PD on
// behalf of others. It waits until objects that are being created are finished. For an AH whose
// neighbor does not reply that takes seconds: if the caller holds a lock meanwhile, other users
// of the lock wait too.
func (c *Context) CloseIdle(but ...Object) error {
	if !c.creating.stopWhile(func() bool { return !c.inUse(but) }) {
		return &Error{Op: "close", Object: c.name, Kind: ErrBusy, Errno: unix.EBUSY,
			Detail: "objects live on it: close them first"}
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
