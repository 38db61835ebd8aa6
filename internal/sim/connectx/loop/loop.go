// Package loop implements the clock and the lock of a simulated world: devices,
// the network between them and the programs that drive them run in turns.
//
// Everything in the world runs inside the loop, one step after the other, and
// needs no other lock.
package loop

import (
	"runtime/debug"
	"sync"
	"time"
)

// A Loop runs steps one at a time. The zero value is ready for use.
type Loop struct {
	// OnPanic, if not nil, is called inside the loop after a step that
	// panicked, with the owner of the step (nil if it has none, see As); then
	// the loop continues. It must be set before the first step.
	OnPanic func(owner, value any, stack []byte)

	mu      sync.Mutex
	owner   any // of the running step
	stopped bool
	queue   []step
	head    int // of queue: steps before it have run

	schedule *schedule // nil without a seed
}

// A step is a queued function with its owner.
type step struct {
	f     func()
	owner any
}

// Run waits for the loop, runs f and then everything that was queued meanwhile.
// Code outside the loop enters it with Run; a step must not call it. After a
// step that panicked the others still run. Without OnPanic, Run then panics.
func (l *Loop) Run(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.drain()
	l.step(step{f: f})
}

// step runs one step.
func (l *Loop) step(s step) {
	l.owner = s.owner
	if l.OnPanic != nil {
		defer func() {
			if p := recover(); p != nil {
				l.OnPanic(l.owner, p, debug.Stack())
			}
		}()
	}
	s.f()
}

// As runs a part of a step on behalf of an owner. A panic in it, in the steps
// that it posts and in its timers is attributed to the owner.
func (l *Loop) As(owner any, f func()) {
	before := l.owner
	l.owner = owner
	f()
	l.owner = before // not after a panic: OnPanic needs the owner
}

// Owner returns the owner of the running step. It must be called in a step.
func (l *Loop) Owner() any { return l.owner }

// drain runs the queued steps.
func (l *Loop) drain() {
	defer func() {
		if l.head < len(l.queue) { // a step did not return
			l.drain()
			return
		}
		l.queue, l.head = nil, 0
	}()
	for l.head < len(l.queue) {
		l.step(l.next())
	}
}

// next removes the first step from the queue. It frees memory of a long chain
// of steps.
func (l *Loop) next() step {
	s := l.queue[l.head]
	l.queue[l.head] = step{}
	l.head++
	if l.head > 1024 && l.head >= len(l.queue)/2 {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	return s
}

// Post queues f after the queued steps. It must be called in a step; outside
// the loop, use Run.
func (l *Loop) Post(f func()) { l.queue = append(l.queue, step{f, l.owner}) }

// Stop ends the timers of the loop: their steps do not run any more.
func (l *Loop) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
}

// A Timer runs one step at a later time.
type Timer struct {
	timer   *time.Timer
	stopped bool

	loop  *Loop
	entry *entry // of a loop with a seed
}

// After runs f inside the loop after d. It must be called in a step.
func (l *Loop) After(d time.Duration, f func()) *Timer {
	if l.schedule != nil {
		return &Timer{loop: l, entry: l.add(l.schedule.elapsed()+d, f)}
	}
	t := &Timer{}
	owner := l.owner
	t.timer = time.AfterFunc(d, func() {
		l.Run(func() {
			if !t.stopped && !l.stopped {
				t.stopped = true
				l.As(owner, f)
			}
		})
	})
	return t
}

// Stop prevents the step from running, and reports whether it did. It must be
// called in a step. A nil Timer never runs.
func (t *Timer) Stop() bool {
	if t == nil || t.stopped {
		return false
	}
	if t.entry != nil {
		return t.loop.remove(t.entry)
	}
	t.stopped = true
	t.timer.Stop()
	return true
}
