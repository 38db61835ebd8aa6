package uverbs

import "golang.org/x/sys/unix"

// closeIdle is verbs.CloseIdle.
func (c *Context) closeIdle(but ...hasObject) error {
	if !c.creating.stopWhile(func() bool { return !c.inUse(but) }) {
		return &Error{Op: "close", Object: c.name, Kind: ErrBusy, Errno: unix.EBUSY,
			Detail: "objects live on it: close them first"}
	}
	return c.Close()
}

// onIdle is verbs.OnIdle.
func (c *Context) onIdle(f func() error, but ...hasObject) {
	if f == nil {
		c.idle.Store(nil)
		return
	}
	c.idle.Store(&idleHook{f, but})
}
