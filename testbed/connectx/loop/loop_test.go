package loop_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/loop"
)

// TestOrder: what a step queues runs after it, in order, before Run returns.
func TestOrder(t *testing.T) {
	var l loop.Loop
	var got []int
	l.Run(func() {
		l.Post(func() {
			got = append(got, 2)
			l.Post(func() { got = append(got, 4) })
		})
		l.Post(func() { got = append(got, 3) })
		got = append(got, 1)
	})
	if want := []int{1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("steps ran as %v, want %v", got, want)
	}
}

// TestLongChain: a chain of steps, each of which queues two and drops out when
// enough have run, keeps its order over the queue's compaction.
func TestLongChain(t *testing.T) {
	var l loop.Loop
	next, made := 0, 0
	var step func(n int) func()
	step = func(n int) func() {
		return func() {
			if n != next {
				t.Fatalf("step %d ran in the place of %d", n, next)
			}
			next++
			for range 2 {
				if made < 20000 {
					l.Post(step(made))
					made++
				}
			}
		}
	}
	l.Run(func() { made++; step(0)() })
	if next != 20000 {
		t.Errorf("%d steps ran, want 20000", next)
	}
}

// TestPanic: after a step that panicked the loop can be entered, and nothing of
// the broken run is left in it.
func TestPanic(t *testing.T) {
	var l loop.Loop
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not come out of Run")
			}
		}()
		l.Run(func() {
			l.Post(func() { t.Error("a step of the broken run ran") })
			panic("broken")
		})
	}()
	ran := false
	l.Run(func() { ran = true })
	if !ran {
		t.Error("the loop did not run again")
	}
}

// TestTimers: a timer runs in the loop at its time, a stopped one never.
func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l loop.Loop
		start := time.Now()
		var fired time.Duration
		l.Run(func() {
			l.After(time.Second, func() { fired = time.Since(start) })
			stopped := l.After(time.Second, func() { t.Error("a stopped timer ran") })
			if !stopped.Stop() {
				t.Error("there was nothing to stop")
			}
			if stopped.Stop() {
				t.Error("it was stopped twice")
			}
		})
		<-time.After(2 * time.Second)
		l.Run(func() {
			if fired != time.Second {
				t.Errorf("the timer ran after %v, want 1s", fired)
			}
		})
		var none *loop.Timer
		if none.Stop() {
			t.Error("a nil timer was stopped")
		}
	})
}

// TestStopInTime: a timer that is due, but waits for its turn, can be stopped.
func TestStopInTime(t *testing.T) {
	var l loop.Loop
	l.Run(func() {
		due := l.After(time.Millisecond, func() { t.Error("a stopped timer ran") })
		later := make(chan bool)
		time.AfterFunc(10*time.Millisecond, func() { close(later) })
		<-later
		if !due.Stop() {
			t.Error("the timer ran while a step did")
		}
	})
	ran := make(chan bool)
	l.Run(func() { l.After(time.Millisecond, func() { close(ran) }) })
	<-ran // behind the stopped one
}
