// Package loop is the clock and the lock of a simulated world: devices, the
// network between them and the programs that drive them take turns in it.
//
// Whatever happens in the world happens inside the loop, one step after the
// other, so nothing in it needs a lock of its own.
package loop

import (
	"runtime/debug"
	"sync"
	"time"
)

// A Loop runs steps one at a time. Its zero value is ready.
type Loop struct {
	// OnPanic, if not nil, is told inside the loop of a step that panicked, whose
	// it was (nil: nobody's, see As), and of where; then the loop goes on. It is to
	// be set before the first step.
	OnPanic func(owner, value any, stack []byte)

	mu    sync.Mutex
	owner any // of the step that runs
	queue []step
	head  int // of queue: what is before it has run
}

// A step is a function that was queued, and whose it is.
type step struct {
	f     func()
	owner any
}

// Run waits for its turn, runs f and then everything that was queued meanwhile.
// It is how the outside enters the loop; a step must not call it. After a step
// that panicked the others run all the same; then, without OnPanic, the panic
// goes on.
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

// As runs a part of a step as somebody's: what panics in it, in the steps that it
// posts and in its timers, is the owner's.
func (l *Loop) As(owner any, f func()) {
	before := l.owner
	l.owner = owner
	f()
	l.owner = before // not after a panic: OnPanic is told of the owner
}

// drain runs what is queued.
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

// next takes the first step off the queue. A long chain of steps keeps no history.
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

// Post queues f behind what is queued already. It is for steps: outside the
// loop, use Run.
func (l *Loop) Post(f func()) { l.queue = append(l.queue, step{f, l.owner}) }

// A Timer runs one step later on.
type Timer struct {
	timer   *time.Timer
	stopped bool
}

// After runs f inside the loop when d has passed. It is for steps.
func (l *Loop) After(d time.Duration, f func()) *Timer {
	t := &Timer{}
	owner := l.owner
	t.timer = time.AfterFunc(d, func() {
		l.Run(func() {
			if !t.stopped {
				t.stopped = true
				l.As(owner, f)
			}
		})
	})
	return t
}

// Stop keeps the step from running; it reports whether there was still one to
// stop. It is for steps. A nil Timer has none.
func (t *Timer) Stop() bool {
	if t == nil || t.stopped {
		return false
	}
	t.stopped = true
	t.timer.Stop()
	return true
}
