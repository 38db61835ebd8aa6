package rdma

import (
	"context"
	"errors"
	"time"
)

// Nothing runs in the background of a connection. Callers that wait poll the completion queue
// themselves, one at a time: the leader. It handles the completions of all, wakes those whose turn it is,
// and before its call returns it wakes another caller to be the leader. A caller thus usually
// finds its own completion without a change of goroutine.

// A waiter is a call that waits while another is the leader.
type waiter struct {
	wake       chan struct{} // has room for one
	list       *waitList     // in which it is; nil after it was woken
	prev, next *waiter
}

// A waitList has waiters in the order of their calls.
type waitList struct{ first, last *waiter }

func (l *waitList) push(w *waiter) {
	w.list, w.prev, w.next = l, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

func (l *waitList) remove(w *waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.list, w.prev, w.next = nil, nil, nil
}

// wakeFirst wakes the first waiter of l, and reports whether there was one.
func (c *Conn) wakeFirst(l *waitList) bool {
	if l.first == nil {
		return false
	}
	c.wake(l.first)
	return true
}

// wake wakes w unless it was woken before.
func (c *Conn) wake(w *waiter) {
	if w == nil || w.list == nil {
		return
	}
	w.list.remove(w)
	c.woken++
	w.wake <- struct{}{}
}

// lists are the waitLists of a connection.
type lists struct {
	others    waitList // calls that wait for their own completion
	receivers waitList // Recv
	senders   waitList // calls that send a message
	offerers  waitList // calls that offer a message
	posters   waitList // calls that post something else
	callers   waitList // Call, for a number
}

func (l *lists) each() [6]*waitList {
	return [...]*waitList{&l.others, &l.receivers, &l.senders, &l.offerers, &l.posters, &l.callers}
}

func (c *Conn) wakeAll() {
	for _, l := range c.each() {
		for c.wakeFirst(l) {
		}
	}
}

// unlock releases c.mu at the end of a call, or before it waits. It wakes a caller that can go on, which
// does the same in turn, or another leader if there is none.
func (c *Conn) unlock() {
	if c.woken == 0 {
		c.wakeNext()
	}
	c.mu.Unlock()
}

// wakeNext wakes the next caller. What it checks for a list must be what those in the list wait for, or one
// of them would wake itself again and again.
func (c *Conn) wakeNext() {
	switch {
	case c.receivers.first != nil && c.receivable():
		c.wake(c.receivers.first)
	case c.senders.first != nil && c.sendable():
		c.wake(c.senders.first)
	case c.offerers.first != nil && c.offerable():
		c.wake(c.offerers.first)
	case c.posters.first != nil && c.room() > 0:
		c.wake(c.posters.first)
	case c.callers.first != nil && c.callable():
		c.wake(c.callers.first)
	case c.leading:
	default:
		for _, l := range c.each() {
			if c.wakeFirst(l) {
				return
			}
		}
	}
}

// step waits until something has happened that may concern the caller. The caller holds c.mu and checks
// what it waits for before and after. mine, if not nil, is where the caller can be found by what it
// waits for.
func (c *Conn) step(ctx context.Context, l *waitList, mine **waiter) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.sendControl(true)
	if c.err != nil {
		return nil // the caller looks at c.err
	}
	if !c.leading {
		return c.lead(ctx)
	}
	w := c.newWaiter()
	l.push(w)
	if mine != nil {
		*mine = w
	}
	c.unlock()
	var err error
	select {
	case <-w.wake:
		c.mu.Lock()
		c.woken--
	case <-ctx.Done():
		c.mu.Lock()
		err = context.Cause(ctx)
		if w.list != nil {
			w.list.remove(w)
		} else {
			<-w.wake // unlock passes it on
			c.woken--
		}
	}
	if mine != nil {
		*mine = nil
	}
	c.idleWaiters = append(c.idleWaiters, w)
	return err
}

func (c *Conn) newWaiter() *waiter {
	n := len(c.idleWaiters)
	if n == 0 {
		return &waiter{wake: make(chan struct{}, 1)}
	}
	w := c.idleWaiters[n-1]
	c.idleWaiters = c.idleWaiters[:n-1]
	return w
}

// lead waits for completions and handles them.
func (c *Conn) lead(ctx context.Context) error {
	c.leading = true
	c.unlock()
	n, err := c.cq.PollWait(ctx, c.wcs[:])
	c.mu.Lock()
	c.leading = false
	if c.closing {
		c.leaderDone.Broadcast()
	}
	c.handle(c.wcs[:n])
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return context.Cause(ctx)
	}
	if c.closing && err == errLeave {
		return nil
	}
	c.fail(err)
	return nil // the caller looks at c.err
}

// errLeave ends the wait of the leader.
var errLeave = errors.New("rdma: the connection is being closed")

// dismiss ends the wait of the leader, and returns when it has handled what has arrived. The caller holds c.mu and
// has set c.closing.
func (c *Conn) dismiss(why error) {
	c.cq.EndWaits(why)
	for c.leading {
		c.leaderDone.Wait()
	}
}

// opError returns the error of an operation.
func (c *Conn) opError(op string, err error) error {
	return &Error{Op: op, Local: c.local, Peer: c.peer, Err: err}
}

// stalled reports the time that a call has waited.
func (c *Conn) stalled(since time.Time) {
	c.stats.Stalls++
	if t := c.options.Trace; t != nil && t.Stalled != nil {
		t.Stalled(c, time.Since(since))
	}
}
