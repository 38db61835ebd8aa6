package lead

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/verbs"
)

// newSide returns the only side of a connection. Its Poll waits until it is interrupted.
func newSide(t *testing.T) *Side {
	interrupts := make(chan struct{}, 1)
	before := verbs.Interrupt
	t.Cleanup(func() { verbs.Interrupt = before })
	verbs.Interrupt = func(_ any, on bool) {
		if on {
			interrupts <- struct{}{}
		}
	}
	var mu sync.Mutex
	ws := &Waiters{Lock: mu.Lock, CQ: t, Handle: func(_ int, err error) error { return err },
		Ready: func(int) bool { return false }}
	ws.Unlock = func() { ws.Pass(); mu.Unlock() }
	ws.Poll = func(context.Context) (int, error) {
		<-interrupts
		return 0, verbs.ErrInterrupted
	}
	return &Side{Waiters: ws}
}

// TestDeadline checks that a call returns at the last deadline that was set, also to a later or an earlier time.
func TestDeadline(t *testing.T) {
	for _, c := range []struct{ set, reset, want time.Duration }{
		{time.Second, 0, time.Second}, {time.Second, time.Minute, time.Minute}, {time.Minute, time.Second, time.Second},
		{time.Minute, -time.Second, 0}, {-time.Second, time.Minute, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, start := newSide(t), time.Now()
			s.Waiters.Lock()
			defer s.Waiters.Unlock()
			s.SetDeadline(start.Add(c.set))
			if c.reset != 0 {
				s.SetDeadline(start.Add(c.reset))
			}
			for !s.Expired {
				if err := s.Waiters.Wait(context.Background(), &s.Waiter); err != nil {
					t.Fatal(err)
				}
			}
			if got := time.Since(start); got != c.want {
				t.Errorf("deadline in %v, then in %v: expired after %v", c.set, c.reset, got)
			}
			s.SetDeadline(time.Time{})
			if s.Expired {
				t.Error("expired without a deadline")
			}
		})
	}
}

// TestNothingAllocated checks that a call that leads and one that sleeps allocate nothing.
func TestNothingAllocated(t *testing.T) {
	s := newSide(t)
	ws, other := s.Waiters, Waiter{Turn: 1}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	ws.Lock()
	defer ws.Unlock()
	ws.Poll = func(context.Context) (int, error) {
		ws.Lock()
		defer ws.Unlock()
		if err := ws.Wait(ended, &other); err != context.Canceled { // while s leads
			t.Error(err)
		}
		return 0, nil
	}
	if n := testing.AllocsPerRun(100, func() { _ = ws.Wait(context.Background(), &s.Waiter) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
