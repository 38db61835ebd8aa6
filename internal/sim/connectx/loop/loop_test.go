package loop

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestOrder checks that queued steps run after the current one, in order,
// before Run returns.
func TestOrder(t *testing.T) {
	var l Loop
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

// TestLongChain checks the order of a long chain of steps across compactions of
// the queue.
func TestLongChain(t *testing.T) {
	var l Loop
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

// TestEndlessChain checks that the queue does not retain steps that have run.
func TestEndlessChain(t *testing.T) {
	for _, width := range []int{1, 3, 5000} {
		var l Loop
		left, most := 1<<18, 0
		var step func()
		step = func() {
			most = max(most, cap(l.queue))
			if left--; left > 0 {
				l.Post(step)
			}
		}
		l.Run(func() {
			for range width {
				l.Post(step)
			}
		})
		if left > 0 || most > 4*max(width, 2048) {
			t.Errorf("%d steps at a time: the queue grew to %d, %d steps are left", width, most, left)
		}
	}
}

// TestPanic checks that a panic prevents no other step, at any position in the
// queue, and that the loop can be entered again.
func TestPanic(t *testing.T) {
	for bad := range 4 {
		var l Loop
		ran := make(map[int]bool)
		step := func(n int) func() {
			return func() {
				if n == bad {
					panic("broken")
				}
				ran[n] = true
			}
		}
		func() {
			defer func() {
				if p := recover(); p != "broken" {
					t.Errorf("%v came out of Run", p)
				}
			}()
			l.Run(func() {
				for n := 1; n < 4; n++ {
					l.Post(step(n))
				}
				step(0)()
			})
		}()
		l.Run(step(4))
		if len(ran) != 4 || ran[bad] || l.queue != nil || l.head != 0 {
			t.Errorf("step %d panicked: the others that ran are %v, and %d are left", bad, ran, len(l.queue))
		}
	}
}

// TestOnPanic checks that with OnPanic no panic leaves the loop: not from Run,
// from a queued step, or from a timer.
func TestOnPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []any
		ran := 0
		l := Loop{OnPanic: func(owner, v any, stack []byte) {
			reported = append(reported, owner, v)
			if !bytes.Contains(stack, []byte("TestOnPanic")) {
				t.Errorf("the stack is not the step's: %s", stack)
			}
		}}
		l.Run(func() {
			l.After(time.Second, func() {
				l.Post(func() { ran++ })
				panic("timer")
			})
			l.As("a", func() {
				l.Post(func() { panic("queued") })
				l.As("b", func() { l.After(3*time.Second/2, func() { l.Post(func() { panic("of a timer") }) }) })
				l.Post(func() { l.As("c", func() {}); panic("again") })
			})
			l.Post(func() { ran++ })
			panic("outside")
		})
		<-time.After(2 * time.Second)
		l.Run(func() {
			if want := []any{nil, "outside", "a", "queued", "a", "again", nil, "timer", "b",
				"of a timer"}; !slices.Equal(reported, want) || ran != 2 {
				t.Errorf("reported %v, want %v; %d other steps ran, want 2", reported, want, ran)
			}
		})
	})
}

// TestTimers checks that a timer runs in the loop at its time, and that a
// stopped one does not.
func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Loop
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
		var none *Timer
		if none.Stop() {
			t.Error("a nil timer was stopped")
		}
	})
}

// TestStopInTime checks that a timer that is due, but waits for the loop, can
// be stopped.
func TestStopInTime(t *testing.T) {
	var l Loop
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
	<-ran // after the stopped one
}
