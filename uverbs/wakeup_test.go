package uverbs

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/monitortest"
)

// awaitRecord reads a record that arrives after d. A timer of the kernel stands for the device: what
// is read from it has the size of a record.
func awaitRecord(t *testing.T, d time.Duration) error {
	fd, err := monitortest.Timer(d)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "timer")
	t.Cleanup(func() { check(t, f.Close()) }) // later, since Go's scheduler is notified of it
	var r record
	if err := r.init(f); err != nil {
		return err
	}
	_, err = r.read()
	return err
}

// TestBusyAfterWait checks that goroutines, timers and descriptors do not wait for goroutines that an
// event has woken in an idle process, and that occupy all CPUs since.
func TestBusyAfterWait(t *testing.T) {
	monitortest.Check(t, func(int) error { return awaitRecord(t, monitortest.Idle) }, func(int) {})
}

// TestBusyAfterWaits is TestBusyAfterWait after several waits, since all but the first in a period do
// not wake the runtime's monitor.
func TestBusyAfterWaits(t *testing.T) {
	monitortest.Check(t, func(int) error {
		for range 1 + rand.IntN(8) {
			if err := awaitRecord(t, 1+rand.N(30*time.Millisecond)); err != nil {
				return err
			}
		}
		return nil
	}, func(int) {})
}
