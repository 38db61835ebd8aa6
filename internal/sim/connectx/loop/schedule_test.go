package loop

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestSchedule checks that a seed decides the order of the flows, and that a flow keeps its order.
func TestSchedule(t *testing.T) {
	play := func(seed uint64) (order []int) {
		var l Loop
		l.SeedSteps(seed)
		l.Run(func() {
			for i := range 30 {
				l.Deliver(i%3, func() { order = append(order, i) })
			}
		})
		for l.Step() {
		}
		return order
	}
	orders := map[string]bool{}
	for seed := range uint64(10) {
		order := play(seed)
		if again := play(seed); !slices.Equal(order, again) {
			t.Errorf("seed %d: %v, and again %v", seed, order, again)
		}
		for flow := range 3 {
			own := slices.DeleteFunc(slices.Clone(order), func(i int) bool { return i%3 != flow })
			if len(own) != 10 || !slices.IsSorted(own) {
				t.Errorf("seed %d: flow %d arrives as %v", seed, flow, own)
			}
		}
		orders[fmt.Sprint(order)] = true
	}
	if len(orders) != 10 {
		t.Errorf("ten seeds make %d orders", len(orders))
	}
}

// TestStepTimers checks that timers and deliveries run at their time, which only Step changes.
func TestStepTimers(t *testing.T) {
	var l Loop
	l.SeedSteps(1)
	start := l.Now()
	var at []time.Duration
	note := func() { at = append(at, l.Now().Sub(start)) }
	l.Run(func() {
		l.After(time.Hour, note)
		stopped := l.After(time.Minute, func() { t.Error("a stopped timer ran") })
		l.After(time.Second, func() {
			note()
			l.After(time.Second, note)
			l.Deliver("x", note)
		})
		if !stopped.Stop() || stopped.Stop() {
			t.Error("a timer is stopped once")
		}
	})
	for l.Step() {
	}
	if len(at) != 4 || at[0] != time.Second || at[1] <= at[0] || at[1] > at[0]+latency || at[2] != 2*time.Second ||
		at[3] != time.Hour {
		t.Errorf("steps at %v", at)
	}
}

// TestSeedAfterPanic checks that a delivery that panics does not stop the later ones.
func TestSeedAfterPanic(t *testing.T) {
	panicked, arrived := make(chan any, 1), make(chan bool)
	l := Loop{OnPanic: func(_, value any, _ []byte) { panicked <- value }}
	l.Seed(1)
	l.Run(func() {
		l.Deliver("x", func() { panic("a delivery") })
		l.Deliver("x", func() { close(arrived) })
	})
	<-arrived
	if v := <-panicked; v != "a delivery" {
		t.Errorf("the loop reports %v", v)
	}
}
