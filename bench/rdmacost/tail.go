package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// tails prints quantiles of the times of single operations, in microseconds, and at last those of small messages
// beside a goroutine that churns the heap.
func tails(l level, count int) error {
	for _, m := range []struct {
		name string
		f    func(level) error
	}{{"read", level.read}, {"write", level.write}, {"small", level.small}} {
		if err := times(m.name, l, count, m.f); err != nil {
			return err
		}
	}
	c := startChurn()
	before := collections()
	err := times("churned", l, count, level.small)
	ran := collections() - before
	c.end()
	if err == nil && ran == 0 {
		err = errors.New("churned: no garbage collection ended in this time: measure more operations")
	}
	fmt.Printf("collections %d\n", ran)
	return err
}

// times prints quantiles of the times of count operations.
func times(name string, l level, count int, f func(level) error) error {
	all := make([]time.Duration, 0, count)
	for range 100 { // pages are touched, the code is in the emulator's cache
		if err := f(l); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for range count {
		began := time.Now()
		if err := f(l); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	for _, q := range []struct {
		name string
		q    float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}} {
		d := all[int(float64(count)*q.q)]
		fmt.Printf("%s.%s %.2f\n", name, q.name, float64(d.Nanoseconds())/1e3)
	}
	return nil
}

func collections() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumGC
}

const (
	blocks  = 1 << 20 // of 64 bytes, on the heap
	perTick = 128     // of them are replaced every millisecond
)

// A block has a pointer, so that the collector visits it.
type block struct {
	next *block
	_    [56]byte
}

// A churn is a goroutine that replaces blocks of the heap at a steady rate. A collection begins when the heap has grown
// by a hundredth: one follows the other.
type churn struct {
	all        []*block
	quit, done chan struct{}
}

func startChurn() *churn {
	c := &churn{make([]*block, blocks), make(chan struct{}), make(chan struct{})}
	for i := range c.all {
		c.all[i] = &block{}
	}
	debug.SetGCPercent(1)
	go c.run()
	return c
}

func (c *churn) run() {
	defer close(c.done)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	at := uint32(1)
	for {
		select {
		case <-c.quit:
			return
		case <-tick.C:
		}
		for range perTick {
			at = at*1664525 + 1013904223
			c.all[at%blocks] = &block{}
		}
	}
}

func (c *churn) end() {
	close(c.quit)
	<-c.done
	debug.SetGCPercent(-1)
}
