// Package monitor keeps the Go runtime's monitor awake after waits.
//
// The monitor is the runtime's thread that preempts goroutines, and that fires timers and reads
// descriptors while goroutines occupy all CPUs. It sleeps once all goroutines wait, until the next
// timer, but at most 60 s. Only the end of a wait for a timer or of a regular system call wakes it. A
// goroutine that the poller wakes, and that makes raw system calls only, does not. If it then
// computes or polls a queue, and others do on the other CPUs, nothing else runs until the monitor
// wakes by itself.
package monitor

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// period is how long the monitor may sleep after a wait that parked. With it, a ready goroutine
// waits 10 to 40 ms for one that does not stop.
const period = 10 * time.Millisecond

// The states of the timer. It runs as long as waits that parked end in each period.
const (
	stopped = iota
	unused  // it runs, and no such wait has ended since it was set
	used
)

var (
	state atomic.Int32
	timer *time.Timer // while it runs, the monitor sleeps for at most period
)

// The timer is created when the program starts, so that it is not one of a testing/synctest bubble.
func init() {
	timer = time.AfterFunc(time.Hour, fire)
	timer.Stop()
}

// fire sets the timer again if a wait has ended since it was set, so that the next wait needs no system call: the
// monitor runs every 20 µs for a while after it was woken by a system call, but not after a timer.
func fire() {
	if state.CompareAndSwap(unused, stopped) {
		return
	}
	state.Store(unused)
	timer.Reset(period)
}

// A Wait is a wait for a nonblocking descriptor in the runtime's poller, with raw system calls. Its
// zero value is a wait that begins.
type Wait struct {
	parked bool
}

// Done reports whether the wait has ended: whether an attempt returned something else than EAGAIN.
// If the goroutine was parked before the attempt, Done wakes the monitor.
func (w *Wait) Done(errno unix.Errno) bool {
	if errno == unix.EAGAIN {
		w.parked = true
		return false
	}
	if w.parked && state.Load() != used {
		wake()
	}
	return true
}

// wake wakes the monitor and starts the timer, or notes that the timer is used. A program that waits all the time makes
// one additional system call.
func wake() {
	if !bubbled() {
		if state.Swap(used) != stopped {
			return
		}
		timer.Reset(period) // first: the monitor looks at the timers before it sleeps
	}
	// Any system call that Go's scheduler is notified of wakes the monitor. This one cannot fail.
	_, _, _ = unix.Syscall(unix.SYS_GETTID, 0, 0, 0)
}

// bubbled reports whether the caller is in a testing/synctest bubble. Its clock shows another time, to
// which a timer of the process cannot be set, and has no monotonic reading.
func bubbled() bool {
	now := time.Now()
	return now == now.Round(0)
}
