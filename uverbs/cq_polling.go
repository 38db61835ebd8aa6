package uverbs

import (
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/verbs"
)

// A wait polls before it sleeps if that is likely to save the sleep. A sleep costs several microseconds of CPU time,
// and more until the goroutine runs again, so a wait that ends sooner should not sleep.

const (
	// chosenPolling is how long a wait polls if the program leaves that to the library: as long as C's rsockets do.
	// Soft-RoCE takes longer, and may need the CPU on which the wait polls.
	chosenPolling = 10 * time.Microsecond
	// maxSkips is how many waits at most do not poll after those that polled in vain.
	maxSkips = 255
	// pollsPerLook is how many polls there are between two looks at the clock and at the ctx, and looksPerYield how many
	// looks until other goroutines have their turn.
	pollsPerLook, looksPerYield = 16, 8
)

// A polling decides whether waits poll. Goroutines may use it at the same time: what they change is a guess.
type polling struct {
	set   atomic.Int64  // by SetPolling
	skip  atomic.Uint32 // how many of the next waits do not poll
	skips atomic.Uint32 // how many that were the last time
}

// time returns how long a wait that begins polls.
func (p *polling) time() time.Duration {
	d := time.Duration(p.set.Load())
	if d == 0 {
		d = verbs.Polling
	}
	switch {
	case d > 0:
		return d
	case d < 0:
		return 0
	}
	if n := p.skip.Load(); n > 0 {
		p.skip.Store(n - 1)
		return 0
	}
	return chosenPolling
}

// done notes whether polling has found a completion. Each failure in a row doubles the number of waits that sleep at
// once.
func (p *polling) done(found bool) {
	n := uint32(0)
	if !found {
		n = min(2*p.skips.Load()+1, maxSkips)
	}
	p.skips.Store(n)
	p.skip.Store(n)
}
