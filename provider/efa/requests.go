package efa

import "sync/atomic"

// requests are those of a queue that have not completed. Each has a number, which the descriptor and
// the completion have. Posts take free numbers, and polls return them; each side has its own lock, so
// the free numbers are a ring with one writer and one reader.
type requests struct {
	notes []note        // by number
	free  []uint16      // a ring of numbers
	mask  uint32        // length of free minus 1
	next  uint32        // numbers that posts have taken so far
	taken atomic.Uint32 // next, as of the last doorbell. Polls read the notes of these requests
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
		size = powerOfTwo(n)
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
	r.next = 0
	r.taken.Store(0)
	r.freed.Store(uint32(len(r.notes)))
}

// full reports whether no number is free, ahead numbers after the next one.
func (r *requests) full(ahead uint32) bool { return r.next+ahead == r.freed.Load() }

// number returns a free number, ahead numbers after the next one, for a request. There must be one.
func (r *requests) number(ahead uint32, wrID uint64) uint16 {
	id := r.free[(r.next+ahead)&r.mask]
	r.notes[id].wrID = wrID
	return id
}

// take takes the next number. Until then, no completion of its request is accepted.
func (r *requests) take() {
	r.notes[r.free[r.next&r.mask]].outstanding = true
	r.next++
}

// publish lets polls see the numbers that have been taken. It precedes the doorbell.
func (r *requests) publish() { r.taken.Store(r.next) }

// release returns the WRID of a request and frees its number. It returns false if the request is not
// outstanding.
func (r *requests) release(id uint16) (wrID uint64, ok bool) {
	freed := r.freed.Load()
	if int(id) >= len(r.notes) || r.taken.Load() == freed-uint32(len(r.notes)) {
		return 0, false // there is no such number, or no request is outstanding
	}
	n := &r.notes[id]
	if !n.outstanding {
		return 0, false
	}
	wrID = n.wrID // a post may use the note again once the number is free
	n.outstanding = false
	r.free[freed&r.mask] = id
	r.freed.Store(freed + 1)
	return wrID, true
}

// outstanding returns how many requests have not completed.
func (r *requests) outstanding() int { return len(r.notes) - int(r.freed.Load()-r.taken.Load()) }
