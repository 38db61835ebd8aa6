package monitor

import (
	"runtime"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// idle waits until the timer has stopped.
func idle() { until(func() bool { return state.Load() == stopped }) }

// TestDone checks that only an attempt after a park wakes the monitor, and that the timer runs until no such attempt
// was made for a period.
func TestDone(t *testing.T) {
	idle()
	var w Wait
	if !w.Done(0) || state.Load() != stopped {
		t.Error("a wait that has not parked: it has not ended, or has woken the monitor")
	}
	if w.Done(unix.EAGAIN) || state.Load() != stopped {
		t.Error("a wait that parks: it has ended, or has woken the monitor")
	}
	for range 3 {
		if !w.Done(unix.EIO) || state.Load() != used {
			t.Error("a wait that has parked: it has not ended, or has not woken the monitor")
		}
		until(func() bool { return state.Load() != used }) // the timer fires
	}
	state.Store(used)
	fire() // sets the timer, since it was used
	idle()
}

// until waits for cond. If it never becomes true, the timeout of the test run ends the test.
func until(cond func() bool) {
	for !cond() {
		runtime.Gosched()
	}
}

// TestAllocations checks that a wait allocates nothing.
func TestAllocations(t *testing.T) {
	if n := testing.AllocsPerRun(1000, func() {
		var w Wait
		w.Done(unix.EAGAIN)
		w.Done(0)
		state.CompareAndSwap(used, unused) // as the timer does
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestBubble checks that a wait in a testing/synctest bubble, whose clock is not the timer's, wakes the
// monitor and does not keep later waits from doing so.
func TestBubble(t *testing.T) {
	idle()
	synctest.Test(t, func(t *testing.T) {
		w := Wait{parked: true}
		if !bubbled() || !w.Done(0) || state.Load() != stopped {
			t.Error("the timer was set by the clock of the bubble")
		}
	})
	w := Wait{parked: true}
	if bubbled() || !w.Done(0) || state.Load() != used {
		t.Error("after a bubble: the timer was not set")
	}
	idle()
}
