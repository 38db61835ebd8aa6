package efa

import (
	"math/bits"
	"sync/atomic"
)

// requests are those of a queue that have not completed. Each has a number, which the descriptor and
// the completion have. Posts take free numbers, and polls return them; each side has its own lock, so
// the free numbers are a ring with one writer and one reader.
type requests struct {
	notes []note        // by number
	free  []uint16      // a ring of numbers
	mask  uint32        // length of free minus 1
	taken uint32        // numbers that posts have taken so far
	freed atomic.Uint32 // numbers that were free at first or that polls have returned
}

// A note is what a completion needs to know of its request.
type note struct {
	wrID        uint64
	outstanding bool
}

// init makes room for n requests.
func (r *requests) init(n int) {
	size := 0
	if n > 0 {
		size = 1 << bits.Len(uint(n-1))
	}
	r.notes, r.free, r.mask = make([]note, n), make([]uint16, size), uint32(max(size, 1)-1)
	r.reset()
}

// reset makes all numbers free.
func (r *requests) reset() {
	clear(r.notes)
	for i := range r.notes {
		r.free[i] = uint16(i)
	}
	r.taken = 0
	r.freed.Store(uint32(len(r.notes)))
}

// full reports whether no number is free.
func (r *requests) full() bool { return r.taken == r.freed.Load() }

// take returns a free number. There must be one.
func (r *requests) take(wrID uint64) uint16 {
	id := r.free[r.taken&r.mask]
	r.notes[id] = note{wrID, true}
	r.taken++
	return id
}

// untake returns the last n numbers, whose requests were not posted.
func (r *requests) untake(n uint32) {
	for ; n > 0; n-- {
		r.taken--
		r.notes[r.free[r.taken&r.mask]].outstanding = false
	}
}

// release returns the WRID of a request and frees its number. It returns false if the request is not
// outstanding.
func (r *requests) release(id uint16) (wrID uint64, ok bool) {
	if int(id) >= len(r.notes) {
		return 0, false
	}
	n := &r.notes[id]
	if !n.outstanding {
		return 0, false
	}
	n.outstanding = false
	freed := r.freed.Load()
	r.free[freed&r.mask] = id
	r.freed.Store(freed + 1)
	return n.wrID, true
}

// outstanding returns how many requests have not completed.
func (r *requests) outstanding() int { return len(r.notes) - int(r.freed.Load()-r.taken) }
