package uverbs

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// CloseIdle closes c if nothing lives on it but the PDs that are named, and
// answers [ErrBusy] otherwise, having closed nothing. It is for those who open
// a device, and make a PD, for others. It waits for what is being made, an AH
// whose neighbour is silent for seconds among it: a caller that holds a lock
// meanwhile holds up whoever wants that.
func (c *Context) CloseIdle(but ...*PD) error {
	c.creating.Lock() // nothing is being made
	busy := c.inUse(but)
	if !busy {
		c.closing = true
	}
	c.creating.Unlock()
	if busy {
		return &Error{Op: "close", Object: c.name, Kind: ErrBusy, Errno: unix.EBUSY, Detail: "objects live on it: close them first"}
	}
	return c.Close()
}

// OnIdle has f called whenever the last object but those PDs has been closed,
// by the goroutine that has closed it, whose Close returns f's error. It is not
// called while c is being closed. f may call CloseIdle.
func (c *Context) OnIdle(f func() error, but ...*PD) {
	c.idle.Store(&idleHook{f, but})
}

type idleHook struct {
	f   func() error
	but []*PD
}

// idled runs the hook after an object was closed, if none is left.
func (c *Context) idled(closing error) error {
	h := c.idle.Load()
	if h == nil || closing != nil || c.inUse(h.but) {
		return closing
	}
	return errors.Join(closing, h.f())
}

// inUse tells whether there are objects beside those PDs and the channel that
// CQs share.
func (c *Context) inUse(but []*PD) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.objects.all {
		shared := c.channel != nil && o == &c.channel.object
		if !shared && !slices.ContainsFunc(but, func(p *PD) bool { return o == &p.object }) {
			return true
		}
	}
	return false
}
