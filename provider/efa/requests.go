package efa

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/mmio"
)

// requests are those of a queue that have not completed. Each has a number, which the descriptor and
// the completion have. Posts take free numbers, and polls return them; each side has its own lock, so
// the free numbers are a ring with one writer and one reader.
//
// The id of a descriptor is a number and, in the bits above those that numbers need, the generation of
// the QP. Thus completions of an earlier QP with the same QPN, or from before RESET, are told apart.
type requests struct {
	notes []note        // by number
	free  []uint16      // a ring of numbers
	mask  uint32        // length of free minus 1
	next  uint32        // numbers that posts have taken so far
	base  atomic.Uint32 // the generation's bits of an id, or noBase
	taken uint32        // next, as of the last doorbell, atomic. Polls read the notes of these requests
	freed uint32        // numbers that were free at first or that polls have returned, atomic
}

// A note is what a completion needs to know of its request.
type note struct {
	wrID        uint64
	outstanding bool
}

// noBase is the base of a queue whose completions are dropped. No id has these bits.
const noBase = 1 << 16

// init makes room for n requests, 2^15 or fewer.
func (r *requests) init(n int, generation uint32) {
	size := 0
	if n > 0 {
		size = powerOfTwo(n)
	}
	r.notes, r.free, r.mask = make([]note, n), make([]uint16, size), uint32(max(size, 1)-1)
	r.reset(generation)
}

// reset makes all numbers free, in a new generation.
func (r *requests) reset(generation uint32) {
	clear(r.notes)
	for i := range r.notes {
		r.free[i] = uint16(i)
	}
	r.next = 0
	mmio.Release32(&r.taken, 0)
	mmio.Release32(&r.freed, uint32(len(r.notes)))
	r.base.Store(generation * (r.mask + 1) % noBase)
}

// current reports whether an id is of this generation.
func (r *requests) current(id uint16) bool { return uint32(id)&^r.mask == r.base.Load() }

// full reports whether no number is free, ahead numbers after the next one.
func (r *requests) full(ahead uint32) bool { return r.next+ahead == r.polled() }

func (r *requests) polled() uint32 { return atomic.LoadUint32(&r.freed) }

// id returns the id for a request with the free number that is ahead numbers after the next one.
func (r *requests) id(ahead uint32, wrID uint64) uint16 {
	number := r.free[(r.next+ahead)&r.mask]
	r.notes[number].wrID = wrID
	return uint16(r.base.Load()) | number
}

// take takes the next number. Until then, no completion of its request is accepted.
func (r *requests) take() {
	r.notes[r.free[r.next&r.mask]].outstanding = true
	r.next++
}

// publish lets polls see the numbers that have been taken. It precedes the doorbell.
func (r *requests) publish() { mmio.Release32(&r.taken, r.next) }

// find returns the note of a request whose completion has an id, or nil if there is no such number, no request is
// outstanding, or the id is of another generation. The request may not be outstanding.
func (r *requests) find(id uint16) *note {
	number, notes, free := uint32(id)&r.mask, uint32(len(r.notes)), r.freed
	base, taken := r.base.Load(), atomic.LoadUint32(&r.taken)
	if uint32(id)-number != base || number >= notes || free-taken == notes {
		return nil
	}
	return r.note(uint16(number))
}

// put frees the number of an id. A post may use the note again then.
func (r *requests) put(id uint16) {
	*r.number(r.freed) = id & uint16(r.mask)
	mmio.Release32(&r.freed, r.freed+1)
}

// release returns the WRID of a request, and frees its number. It returns false if the request is not outstanding.
func (r *requests) release(id uint16) (wrID uint64, ok bool) {
	n := r.find(id)
	if n == nil || !n.outstanding {
		return 0, false
	}
	wrID = n.wrID
	n.outstanding = false
	r.put(id)
	return wrID, true
}

// outstanding returns how many requests have not completed.
func (r *requests) outstanding() int {
	return len(r.notes) - int(atomic.LoadUint32(&r.freed)-atomic.LoadUint32(&r.taken))
}
