// Package lead has the protocol by which the calls of a connection wait for completions, without a goroutine in the
// background. Of the calls that wait, one is the leader: it polls the CQ and handles the completions for all calls. The
// others are asleep. A call thus usually finds its own completion without a change of goroutine.
//
//   - A call that waits becomes the leader if there is none, and falls asleep otherwise.
//   - The leader returns after each poll: with completions, when its ctx ends, or when it is interrupted. Its call goes
//     on, or waits again.
//   - A goroutine that releases the lock wakes the waiter that is next: of those that can go on, the one whose turn
//     comes first. If none can, and there is no leader, it is the one whose turn comes first of all, which then leads.
//   - A call that releases the lock only to let others have it leads after that, or wakes one at its end: see Relock.
//   - It wakes one, and none while a woken waiter is on its way, which wakes the next when it releases the lock.
//   - It interrupts the leader if what that waits for has become available without a completion.
//
// So if A leads while B and C are asleep, and A's deadline passes: the poll ends, A handles what it has polled, and its
// call returns an error. When it releases the lock, it wakes B or C if one can go on, and B otherwise. If that call
// does not return, it leads. If it does, it wakes the other one in the same way.
package lead

import (
	"cmp"
	"context"
	"slices"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/verbs"
)

// MaxNeeds is how many things the waiters of a connection may wait for.
const MaxNeeds = 10

// Waiters are the calls that wait for completions of a CQ. The caller of a method holds the lock.
type Waiters struct {
	// These fields are set before the first call.

	Lock   func() // acquires the lock
	Unlock func() // calls Pass and releases the lock

	// Poll polls the CQ, and waits until there is a completion, ctx ends, or Interrupt of package verbs. Only the leader
	// calls it, without the lock. Handle handles what Poll has returned, with the lock. The error is not that of an
	// interrupt or of ctx. What Handle returns, Wait returns.
	Poll   func(ctx context.Context) (int, error)
	Handle func(n int, err error) error
	CQ     any // that Poll polls, or nil: no call leads

	// Ready reports whether a waiter with a need can go on. A waiter that is woken for it must find the same, or go on to
	// another need, as otherwise it would be woken again and again.
	Ready func(need int) bool

	leader      *Waiter
	interrupted bool                // the leader's poll is to end
	asleep      [MaxNeeds][]*Waiter // by need, in the order of turns
	sleepers    int
	woken       int // waiters that were woken and do not have the lock yet
	relocking   int // calls in Relock
}

// A Waiter is a call that waits. Need and Turn do not change while it does.
type Waiter struct {
	Need int    // that Ready knows, less than MaxNeeds
	Turn uint64 // unique

	// Yields makes the waiter fall asleep if another was woken, also if it could lead: the leader would take first what
	// the other was woken for.
	Yields bool

	asleep bool
	wake   chan struct{} // has room for one
}

// Wait waits until something has happened that may concern w, which is not ready. The caller checks that before and
// after it. It returns the error of Handle, or that of ctx if ctx ends first. It releases the lock while it waits.
func (ws *Waiters) Wait(ctx context.Context, w *Waiter) error {
	if ws.leader != nil || ws.CQ == nil || w.Yields && ws.woken > 0 {
		return ws.sleep(ctx, w)
	}
	return ws.lead(ctx, w)
}

// lead polls once, and handles what there is.
func (ws *Waiters) lead(ctx context.Context, w *Waiter) (ended error) {
	ws.leader = w
	ws.Unlock()
	n, err := ws.Poll(ctx)
	ws.Lock()
	ws.leader = nil
	if ws.interrupted {
		ws.interrupted = false
		verbs.Interrupt(ws.CQ, false)
	}
	switch {
	case err == nil:
	case err == verbs.ErrInterrupted:
		err = nil
	case ctxerr.Is(ctx, err):
		ended, err = ctxerr.Of(ctx), nil
	}
	if err := ws.Handle(n, err); err != nil {
		return err
	}
	return ended
}

// sleep waits until w is woken.
func (ws *Waiters) sleep(ctx context.Context, w *Waiter) error {
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
	}
	l, i := ws.place(w)
	*l = slices.Insert(*l, i, w)
	w.asleep = true
	ws.sleepers++
	ws.Unlock()
	var err error
	select {
	case <-w.wake:
		ws.Lock()
	case <-ctx.Done():
		ws.Lock()
		err = ctxerr.Of(ctx)
		if w.asleep {
			ws.remove(w)
			return err
		}
		<-w.wake // w was woken meanwhile: it wakes the next when its call releases the lock
	}
	ws.woken--
	return err
}

// place returns where w is among those that are asleep, or is to be.
func (ws *Waiters) place(w *Waiter) (l *[]*Waiter, i int) {
	l = &ws.asleep[w.Need]
	i, _ = slices.BinarySearchFunc(*l, w.Turn, func(w *Waiter, turn uint64) int { return cmp.Compare(w.Turn, turn) })
	return l, i
}

func (ws *Waiters) remove(w *Waiter) {
	l, i := ws.place(w)
	*l = slices.Delete(*l, i, i+1)
	w.asleep = false
	ws.sleepers--
}

// Relock releases the lock and acquires it again, so that others have it meanwhile. No waiter is woken to lead: the
// caller does that next, or wakes one when it releases the lock.
func (ws *Waiters) Relock() {
	ws.relocking++
	ws.Unlock()
	ws.Lock()
	ws.relocking--
}

// Pass wakes the waiter that is next, unless a woken one is on its way. It interrupts the leader if that can go on:
// what it waits for has become available without a completion.
func (ws *Waiters) Pass() {
	if ws.leader != nil || ws.sleepers > 0 {
		ws.pass()
	}
}

func (ws *Waiters) pass() {
	if w := ws.leader; w != nil && ws.Ready(w.Need) {
		ws.Interrupt(w)
	}
	if ws.sleepers > 0 && ws.woken == 0 {
		ws.wakeNext()
	}
}

func (ws *Waiters) wakeNext() {
	var first, ready *Waiter
	for need := range ws.asleep {
		if len(ws.asleep[need]) == 0 {
			continue
		}
		w := ws.asleep[need][0]
		if first == nil || w.Turn < first.Turn {
			first = w
		}
		if (ready == nil || w.Turn < ready.Turn) && ws.Ready(need) {
			ready = w
		}
	}
	if ready == nil && ws.leader == nil && ws.relocking == 0 {
		ready = first // to lead
	}
	ws.Wake(ready)
}

// Wake wakes w if it is asleep. W may be nil.
func (ws *Waiters) Wake(w *Waiter) {
	if w == nil || !w.asleep {
		return
	}
	ws.remove(w)
	ws.woken++
	w.wake <- struct{}{}
}

// WakeAll wakes all that are asleep.
func (ws *Waiters) WakeAll() {
	for need := range ws.asleep {
		for len(ws.asleep[need]) > 0 {
			ws.Wake(ws.asleep[need][0])
		}
	}
}

// Interrupt makes w return from Wait, whether it leads or is asleep.
func (ws *Waiters) Interrupt(w *Waiter) {
	ws.Wake(w)
	if w != nil && w == ws.leader && !ws.interrupted {
		ws.interrupted = true
		verbs.Interrupt(ws.CQ, true)
	}
}

// Leader returns the leader, or nil. There is none while completions are handled.
func (ws *Waiters) Leader() *Waiter { return ws.leader }
