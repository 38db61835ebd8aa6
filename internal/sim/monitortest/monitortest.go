// Package monitortest checks that the Go runtime preempts goroutines that compute or poll after a
// wait. Only tests import it.
package monitortest

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Idle is how long the process must have been idle before the waits end, so that the runtime's
	// monitor sleeps.
	Idle = 200 * time.Millisecond
	// limit is far above what is expected, tens of milliseconds, and below the 60 s that the monitor
	// may sleep.
	limit  = 5 * time.Second
	rounds = 5
	// Waits is how many waits a Check has: one in each round with one CPU, two with two.
	Waits = 3 * rounds
	// timeout is the duration of the timer that must fire while all CPUs are busy.
	timeout = 20 * time.Millisecond
)

// Timer returns a nonblocking descriptor that becomes readable after d, from the kernel and without
// the Go runtime.
func Timer(d time.Duration) (fd int, err error) {
	fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err == nil && d > 0 {
		err = expire(fd, d)
	}
	return fd, err
}

// expire makes a descriptor of Timer readable after d. Go's scheduler is not notified of the call.
func expire(fd int, d time.Duration) error {
	return unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}

// Check runs as many waiters at a time as there are CPUs for Go, with one CPU and with two. Each
// calls wait, which returns after at least Idle in which the process does nothing. It then calls work
// in a loop. Go's scheduler must not be notified of a system call that either makes after its wait.
// Both get the number of the waiter, from 0 to Waits-1.
//
// Check fails the test if another goroutine, a timer or another descriptor waits for long
// meanwhile.
func Check(t *testing.T, wait func(i int) error, work func(i int)) {
	t.Helper()
	number := 0
	for n := 1; n <= 2; n++ {
		var all [3][]time.Duration
		was := runtime.GOMAXPROCS(n)
		for range rounds {
			c := &crowd{n: int64(n)}
			first := number
			if err := c.run(t, func(i int) error { return wait(first + i) }, func(i int) { work(first + i) }); err != nil {
				t.Error(err)
			}
			number += n
			for i := range all {
				all[i] = append(all[i], time.Duration(c.delays[i].Load()))
			}
			if t.Failed() {
				break
			}
		}
		runtime.GOMAXPROCS(was)
		for i, what := range []string{"a ready goroutine", "a timer of 20 ms", "another descriptor"} {
			slices.Sort(all[i])
			t.Logf("GOMAXPROCS=%d: %s waited %v in the median, %v at most", n, what,
				all[i][len(all[i])/2].Round(time.Millisecond), all[i][len(all[i])-1].Round(time.Millisecond))
		}
	}
}

// What waits for a CPU.
const (
	ready = iota
	timer
	descriptor
)

// epoch is when the program started.
var epoch = time.Now()

// A crowd occupies all CPUs.
type crowd struct {
	n      int64
	busy   atomic.Int64
	began  atomic.Int64    // in nanoseconds since epoch
	delays [3]atomic.Int64 // in nanoseconds; 0: still waiting
}

// done records the delay of one who expected to run d after the crowd began.
func (c *crowd) done(what int, d time.Duration) {
	c.delays[what].Store(max(int64(time.Since(epoch)-d)-c.began.Load(), 1))
}

// finished reports whether all have run.
func (c *crowd) finished() bool {
	for i := range c.delays {
		if c.delays[i].Load() == 0 {
			return false
		}
	}
	return true
}

// begin starts those who need a CPU. other is the descriptor.
func (c *crowd) begin(other int) error {
	c.began.Store(int64(time.Since(epoch)))
	go c.done(ready, 0)
	time.AfterFunc(timeout, func() { c.done(timer, timeout) })
	return expire(other, time.Millisecond)
}

func (c *crowd) run(t *testing.T, wait func(int) error, work func(int)) error {
	t.Helper()
	other, err := Timer(0)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(other), "timer")
	defer file.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		var b [8]byte
		if _, err := file.Read(b[:]); err != nil {
			t.Error(err)
		}
		c.done(descriptor, time.Millisecond)
	})
	errs := make([]error, c.n)
	for i := range int(c.n) {
		wg.Go(func() {
			errs[i] = wait(i)
			if c.busy.Add(1) == c.n {
				if err := c.begin(other); err != nil {
					t.Error(err)
				}
			}
			for end := time.Now().Add(limit); !c.finished() && time.Now().Before(end); {
				work(i)
			}
		})
	}
	wg.Wait()
	for i := range c.delays {
		if d := time.Duration(c.delays[i].Load()); d >= limit {
			t.Errorf("a goroutine, timer or descriptor waited %v for those that compute after a wait", d)
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
