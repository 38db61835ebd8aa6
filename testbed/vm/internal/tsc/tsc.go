// Package tsc measures the frequency of this machine's time stamp counter,
// which emulated guests of QEMU use.
package tsc

import (
	"sync"
	"time"
)

// KHz returns the frequency of the counter in kHz, or 0 if the machine has
// none. It is measured once.
var KHz = sync.OnceValue(func() int {
	if !known {
		return 0
	}
	return measure(precision)
})

// precision is the ratio of the length of the measurement to the uncertainty of
// its two ends.
const precision = 10_000

func measure(precision time.Duration) int {
	first := look()
	for {
		time.Sleep(time.Millisecond)
		last := look()
		if passed := last.at.Sub(first.at); passed >= precision*(first.width+last.width) {
			return int(float64(last.ticks-first.ticks) / passed.Seconds() / 1000)
		}
	}
}

// A moment is a value of the counter, which was read between at and at+width.
type moment struct {
	ticks uint64
	at    time.Time
	width time.Duration
}

// look returns the most precise of several reads. During the others this thread
// may have lost its CPU.
func look() moment {
	var best moment
	for i := range 20 {
		before := time.Now()
		n := ticks()
		m := moment{n, before, time.Since(before)}
		if i == 0 || m.width < best.width {
			best = m
		}
	}
	return best
}
