// Package tsc measures the time stamp counter of this machine, which QEMU hands
// to guests that it emulates.
package tsc

import (
	"sync"
	"time"
)

// KHz is how many thousand times a second the counter counts, and 0 on a
// machine that has none. It is measured once.
var KHz = sync.OnceValue(func() int {
	if !known {
		return 0
	}
	return measure(precision)
})

// precision is how many times longer the measurement takes than its two ends
// are uncertain.
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

// A moment is a state of the counter, and when that was: at, or up to width
// later.
type moment struct {
	ticks uint64
	at    time.Time
	width time.Duration
}

// look takes the surest of some looks. In the others this thread may have lost
// its CPU in between.
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
