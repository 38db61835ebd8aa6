package rdma

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/verbs"
)

// Nothing runs in the background of a connection. Callers that wait poll the completion queue
// themselves, one at a time: the leader. It handles the completions of all, wakes those whose turn it is,
// and before its call returns it wakes another caller to be the leader. A caller thus usually
// finds its own completion without a change of goroutine.

// A waiter is a call that waits while another is the leader.
type waiter struct {
	wake       chan struct{} // has room for one
	list       *waitList     // in which it is; nil after it was woken
	turn       uint64        // number of the call among those that wait
	prev, next *waiter
}

// A waitList has waiters in the order of their turns.
type waitList struct{ first, last *waiter }

func (l *waitList) push(w *waiter) {
	prev := l.last
	for prev != nil && prev.turn > w.turn { // w was woken in vain
		prev = prev.prev
	}
	w.list, w.prev, w.next = l, prev, l.first
	if prev != nil {
		w.next, prev.next = prev.next, w
	} else {
		l.first = w
	}
	if w.next != nil {
		w.next.prev = w
	} else {
		l.last = w
	}
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
	others        waitList // calls that wait for their own completion
	receivers     waitList // Recv
	senders       waitList // calls that send a message
	offerers      waitList // calls that offer a message
	repliers      waitList // calls that send a reply
	replyOfferers waitList // calls that offer a reply
	posters       waitList // calls that post something else
	callers       waitList // Call, for a number
}

func (l *lists) each() [8]*waitList {
	return [...]*waitList{&l.others, &l.receivers, &l.senders, &l.offerers, &l.repliers, &l.replyOfferers, &l.posters,
		&l.callers}
}

// needCredit reports whether the calls in w wait for credits.
func (l *lists) needCredit(w *waitList) bool {
	return w == &l.senders || w == &l.offerers || w == &l.repliers || w == &l.replyOfferers
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
	if c.queued != nil {
		c.runHooks()
	}
	c.mu.Unlock()
}

// wakeNext wakes the next caller. What it checks for a list must be what those in the list wait for, or one
// of them would wake itself again and again. Of the lists that can go on, it takes the caller that has waited
// longest: a long message would wait forever while others have short ones to send.
func (c *Conn) wakeNext() {
	if c.receivers.first != nil && c.receivable() {
		c.wake(c.receivers.first)
		return
	}
	var next *waiter
	if c.senders.first != nil && c.sendable() {
		next = c.senders.first
	}
	if c.offerers.first.before(next) && c.offerable() {
		next = c.offerers.first
	}
	if c.repliers.first.before(next) && c.replyable() {
		next = c.repliers.first
	}
	if c.replyOfferers.first.before(next) && c.replyOfferable() {
		next = c.replyOfferers.first
	}
	if c.posters.first.before(next) && c.room() > 0 {
		next = c.posters.first
	}
	if c.callers.first.before(next) && c.callable() {
		next = c.callers.first
	}
	if next == nil && c.leader == leaderNone {
		for _, l := range c.each() {
			if l.first.before(next) {
				next = l.first
			}
		}
	}
	c.wake(next)
}

// before reports whether there is a waiter w whose turn is before that of other, if there is one.
func (w *waiter) before(other *waiter) bool { return w != nil && (other == nil || w.turn < other.turn) }

// nextTurn returns the turn of a call that begins to wait.
func (c *Conn) nextTurn() uint64 {
	c.turns++
	return c.turns
}

// step waits until something has happened that may concern the caller. The caller holds c.mu and checks
// what it waits for before and after. mine, if not nil, is where the caller can be found by what it
// waits for.
func (c *Conn) step(ctx context.Context, l *waitList, mine **waiter) error {
	return c.stepAt(ctx, c.nextTurn(), l, mine)
}

// stepAt is step for a call that keeps its turn.
func (c *Conn) stepAt(ctx context.Context, turn uint64, l *waitList, mine **waiter) error {
	if ctx.Err() != nil {
		return ctxerr.Of(ctx)
	}
	c.sendControl(true)
	if c.err != nil {
		return nil // the caller looks at c.err
	}
	// The next leader takes the next credit: one that waits longer and was woken for it comes first.
	yield := c.woken > 0 && c.needCredit(l)
	if c.leader == leaderNone && !yield {
		return c.lead(ctx)
	}
	w := c.newWaiter()
	w.turn = turn
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
		err = ctxerr.Of(ctx)
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

// leaderState says what the leader does.
type leaderState uint8

const (
	leaderNone    leaderState = iota
	leaderPolls               // without c.mu
	leaderHandles             // what it has polled, with c.mu
)

// lead waits for completions and handles them.
func (c *Conn) lead(ctx context.Context) error {
	c.leader = leaderPolls
	c.unlock()
	n, err := c.cq.PollWait(ctx, c.wcs[:])
	c.mu.Lock()
	c.leader = leaderHandles
	c.handle(c.wcs[:n])
	c.leader = leaderNone
	if c.closing || c.failure != nil {
		c.leaderDone.Broadcast()
		if c.failure != nil {
			c.decide()
		}
	}
	if err == nil {
		return nil
	}
	if ctxerr.Is(ctx, err) {
		return ctxerr.Of(ctx)
	}
	if err == errLeave && (c.closing || c.err != nil) {
		return nil
	}
	c.fail(err)
	return nil // the caller looks at c.err
}

// errLeave ends the wait of the leader.
var errLeave = errors.New("rdma: the connection is being closed, or has ended")

// dismiss ends the wait of the leader, and returns when it has handled what has arrived. The caller holds c.mu and
// has set c.closing.
func (c *Conn) dismiss(why error) {
	verbs.EndWaits(c.cq, why)
	for c.leader == leaderPolls {
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
		d := time.Since(since)
		c.later(func() { t.Stalled(c, d) })
	}
}
