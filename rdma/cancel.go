package rdma

import (
	"context"
	"fmt"
	"slices"
)

// This file has the cancellation of calls. A side whose [Conn.Call] returns before the reply has come sends a
// kindCancel, and the peer ends the context of the call. The reply is still to come, or is on its way: only then may
// another call have the number. Cancels have separate receives and credits, so that they also arrive if the peer's
// program releases no messages. A kindCredits has the number of these credits.

// maxCancels is how many cancels a side may send before it gets credits. It is a part of featureCancel. A later version
// may grant further credits.
const maxCancels = 1

// initCancels sets up the flow of cancels if both sides have them.
func (c *Conn) initCancels() {
	if c.remote.features&allFeatures&featureCancel != 0 {
		c.cancels = flow{credits: maxCancels, most: maxCalls, receives: maxCancels, granted: maxCancels}
	}
}

// cancel sends the peer that no caller waits for the reply to a call.
func (c *Conn) cancel(k *call) {
	if c.cancels.most == 0 || c.usable() != nil {
		return
	}
	k.canceled = true
	c.control.cancels = append(c.control.cancels, k.number)
	c.sendControl(false)
	if len(c.control.cancels) > 0 && !c.canceling {
		c.canceling = true
		go c.awaitCancels()
	}
}

// awaitCancels handles what arrives until all cancels are sent: their callers have returned.
func (c *Conn) awaitCancels() {
	c.mu.Lock()
	defer c.unlock()
	for len(c.control.cancels) > 0 && c.usable() == nil && c.step(context.Background(), needOwn, nil) == nil {
	}
	c.canceling = false
}

// uncancel leaves out the cancel of a call that has its reply.
func (c *Conn) uncancel(k *call) {
	if k.canceled {
		c.control.cancels = slices.DeleteFunc(c.control.cancels, func(n int) bool { return n == k.number })
	}
}

// cancelable reports whether a cancel is to be sent and has a credit.
func (c *Conn) cancelable() bool {
	return len(c.control.cancels) > 0 && c.cancels.credits > 0 && c.usable() == nil
}

// sendCancels sends cancels as far as there is room.
func (c *Conn) sendCancels() error {
	for c.cancelable() && c.space() > 0 {
		number := c.control.cancels[0]
		c.control.cancels = slices.Delete(c.control.cancels, 0, 1)
		c.cancels.credits--
		if err := c.postControl(kindCancel, number, nil, false); err != nil {
			return err
		}
	}
	return nil
}

// canceledBy handles a cancel of the peer. The reply may have been sent.
func (c *Conn) canceledBy(number int) error {
	f, k := &c.cancels, &c.calls
	switch {
	case f.granted == 0:
		return fmt.Errorf("%w: a cancel without a credit: a peer may send %d before it gets one back", ErrProtocol,
			f.receives)
	case number >= len(k.asked) || k.asked[number].canceled:
		return fmt.Errorf("%w: a cancel of call %d, which it has not begun or has canceled before", ErrProtocol, number)
	}
	f.granted--
	f.owed++
	a := &k.asked[number]
	a.canceled = true
	a.ctx.end(errCanceled)
	return nil
}

var (
	errCanceled = fmt.Errorf("%w by the peer: the context of its call has ended", context.Canceled)
	errDeadline = fmt.Errorf("%w: that of the peer's call", context.DeadlineExceeded)
	errReplied  = fmt.Errorf("%w: the call has its reply", context.Canceled)
	errReturned = fmt.Errorf("%w: the handler has returned", context.Canceled)
)

// Context returns a context that ends when the peer's [Conn.Call] has returned because its context has ended, when the
// call has its reply, and when the connection ends or is closed. It has the deadline of the peer's context, which it
// sends as the time that is left: the clocks of the sides may differ. context.Cause returns why it has ended. A
// canceled call needs a reply, too: without it, it is one of the 1024 that may wait. The context of a message that is
// not a call ends with the connection. A peer with a version of this package that sends neither cancels nor deadlines
// does not end it.
//
// A connection on which no call waits does not notice anything: while a context whose Done or Err was called has not
// ended, a goroutine waits for it.
func (m Message) Context() context.Context {
	c := m.c
	if c == nil {
		return context.Background()
	}
	c.mu.Lock()
	defer c.unlock()
	if m.kind == kindCall {
		return c.callContext(context.Background(), m)
	}
	if c.ctx == nil {
		c.ctx = c.newContext(context.Background())
	}
	return c.ctx
}

// serveContext returns the context of a handler of a message.
func (m Message) serveContext(parent context.Context) *callContext {
	m.c.mu.Lock()
	defer m.c.unlock()
	if m.kind == kindCall {
		return m.c.callContext(parent, m)
	}
	return m.c.newContext(parent)
}

// callContext returns the context of a call. The first caller sets its parent.
func (c *Conn) callContext(parent context.Context, m Message) *callContext {
	a := &c.calls.asked[m.number]
	if a.serial == m.serial {
		if a.ctx == nil {
			a.ctx = c.newContextUntil(parent, a.terms)
		}
		if a.canceled {
			a.ctx.end(errCanceled)
		}
		return a.ctx
	}
	x := c.newContext(parent)
	x.end(errReplied)
	delete(c.contexts, x)
	return x
}

// newContextUntil returns the context of a call, whose caller may have a deadline. The caller holds c.mu.
func (c *Conn) newContextUntil(parent context.Context, t terms) *callContext {
	if t.deadline.IsZero() {
		return c.newContext(parent)
	}
	parent, stop := context.WithDeadlineCause(parent, t.deadline, errDeadline)
	x := c.newContext(parent)
	end := x.cancel
	x.cancel = func(cause error) {
		end(cause)
		stop()
	}
	if x.Context.Err() != nil { // newContext has ended it
		stop()
	}
	return x
}

// newContext returns a context that ends with the connection. The caller holds c.mu.
func (c *Conn) newContext(parent context.Context) *callContext {
	x := &callContext{c: c}
	x.Context, x.cancel = context.WithCancelCause(parent)
	if end := c.usable(); end != nil {
		x.cancel(end)
		return x
	}
	if c.contexts == nil {
		c.contexts = map[*callContext]struct{}{}
	}
	c.contexts[x] = struct{}{}
	return x
}

// end ends a context, if there is one.
func (x *callContext) end(cause error) {
	if x != nil {
		x.cancel(cause)
	}
}

// endContexts ends the contexts of all calls. The caller holds c.mu.
func (c *Conn) endContexts(cause error) {
	for x := range c.contexts {
		x.end(cause)
	}
	c.contexts = nil
}

// Done implements context.Context.
func (x *callContext) Done() <-chan struct{} {
	if !x.watched.Swap(true) && x.Context.Err() == nil {
		go x.watch()
	}
	return x.Context.Done()
}

// Err implements context.Context. Calls of the connection call it with c.mu held.
func (x *callContext) Err() error {
	x.Done()
	return x.Context.Err()
}

// watch handles what arrives until the context ends.
func (x *callContext) watch() {
	c := x.c
	c.mu.Lock()
	defer c.unlock()
	for c.usable() == nil && c.step(x.Context, needOwn, nil) == nil {
	}
}

// look handles what has arrived, if no call waits for it. The caller holds c.mu.
func (c *Conn) look() {
	if c.waiters.Leader() == nil && c.err == nil && !c.closing {
		c.harvest()
		if c.failure != nil {
			c.decide()
		}
	}
}
