package measure

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// tails prints quantiles of the times of single operations, in microseconds, those of small messages also beside a
// goroutine that churns the heap.
func tails(w io.Writer, l *Level, count int) error {
	for _, o := range l.operations() {
		if o.every == 0 {
			continue
		}
		err := times(w, o.name, count, o)
		if err == nil && o.name == "small" {
			err = churned(w, count, o)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return nil
}

func churned(w io.Writer, count int, o operation) error {
	c := startChurn()
	before := collections()
	err := times(w, "churned", count, o)
	ran := collections() - before
	c.end()
	if err == nil && ran == 0 {
		err = errors.New("no garbage collection ended beside it: measure more operations")
	}
	fmt.Fprintf(w, "collections %d\n", ran)
	return err
}

// times prints the quantiles of count times, or of fewer, of which there are enough.
func times(w io.Writer, name string, count int, o operation) error {
	for range max(1, 100/o.every) { // pages are touched, the code is in the emulator's cache
		if err := o.run(); err != nil {
			return err
		}
	}
	all := make([]time.Duration, max(1, count/o.every))
	for i := range all {
		began := time.Now()
		if err := o.run(); err != nil {
			return err
		}
		all[i] = time.Since(began) / time.Duration(o.of)
	}
	slices.Sort(all)
	for _, q := range []struct {
		name  string
		q     float64
		least int
	}{{"p50", 0.5, 1}, {"p99", 0.99, 100}, {"p99.9", 0.999, 1000}} {
		if len(all) >= q.least {
			fmt.Fprintf(w, "%s.%s %.2f\n", name, q.name, float64(all[int(float64(len(all))*q.q)].Nanoseconds())/1e3)
		}
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

// churnGOGC is GOGC meanwhile. With 1, as by default, one collection follows the other.
var churnGOGC = 1

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
	debug.SetGCPercent(churnGOGC)
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
