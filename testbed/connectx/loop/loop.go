// Package loop is the clock and the lock of a simulated world: devices, the
// network between them and the programs that drive them take turns in it.
//
// Whatever happens in the world happens inside the loop, one step after the
// other, so nothing in it needs a lock of its own.
package loop

import (
	"sync"
	"time"
)

// A Loop runs steps one at a time. Its zero value is ready.
type Loop struct {
	mu    sync.Mutex
	queue []func()
}

// Run waits for its turn, runs f and then everything that was queued meanwhile.
// It is how the outside enters the loop; a step must not call it.
func (l *Loop) Run(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.queue = nil }() // of a step that panicked
	f()
	for i := 0; i < len(l.queue); i++ {
		step := l.queue[i]
		l.queue[i] = nil
		if i == len(l.queue)/2 && i > 1024 { // a long chain of steps keeps no history
			l.queue = append(l.queue[:0], l.queue[i+1:]...)
			i = -1
		}
		step()
	}
}

// Post queues f behind what is queued already. It is for steps: outside the
// loop, use Run.
func (l *Loop) Post(f func()) { l.queue = append(l.queue, f) }

// A Timer runs one step later on.
type Timer struct {
	timer   *time.Timer
	stopped bool
}

// After runs f inside the loop when d has passed. It is for steps.
func (l *Loop) After(d time.Duration, f func()) *Timer {
	t := &Timer{}
	t.timer = time.AfterFunc(d, func() {
		l.Run(func() {
			if !t.stopped {
				t.stopped = true
				f()
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
