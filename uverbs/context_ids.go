package uverbs

import "math"

// A queue is a CQ, a QP, an SRQ or a WQ: an object to which events refer.
type queue interface {
	// deviceGone makes posts and polls report that the device is gone.
	deviceGone()
}

// An idTable gives queues the ids by which the kernel's events refer to them. An id is never
// reused, so that a late event of a closed object finds nothing. 0 is not an id.
type idTable struct {
	base  uint64 // that new slots begin with: 0, or one in the high half of an id
	slots []idSlot
	free  []uint32 // indexes of slots without a queue
}

// The low half of an id is the index of its slot plus 1. The high half counts the queues that
// had the slot before.
type idSlot struct {
	id    uint64
	queue queue // nil: the slot is free
}

const nextID = 1 << 32 // from an id to the next one of its slot

// add returns a new id for q.
func (t *idTable) add(q queue) uint64 {
	n := len(t.free) - 1
	if n < 0 {
		id := t.base + uint64(len(t.slots)) + 1
		t.slots = append(t.slots, idSlot{id, q})
		return id
	}
	s := &t.slots[t.free[n]]
	t.free = t.free[:n]
	s.id, s.queue = s.id+nextID, q
	return s.id
}

// slot returns the slot of the queue with an id, or nil.
func (t *idTable) slot(id uint64) *idSlot {
	i := uint32(id) - 1
	if uint64(i) >= uint64(len(t.slots)) || t.slots[i].id != id || t.slots[i].queue == nil {
		return nil
	}
	return &t.slots[i]
}

// get returns the queue with an id, or nil.
func (t *idTable) get(id uint64) queue {
	s := t.slot(id)
	if s == nil {
		return nil
	}
	return s.queue
}

// remove removes a queue. An id without a queue is ignored.
func (t *idTable) remove(id uint64) {
	s := t.slot(id)
	if s == nil {
		return
	}
	s.queue = nil
	if id < math.MaxUint64-nextID { // otherwise the next id of the slot would be its first one
		t.free = append(t.free, uint32(id)-1)
	}
}

// all is an iterator over the queues. The table must not change meanwhile.
func (t *idTable) all(yield func(queue) bool) {
	for i := range t.slots {
		if q := t.slots[i].queue; q != nil && !yield(q) {
			return
		}
	}
}

// count returns the number of queues.
func (t *idTable) count() (n int) {
	for range t.all {
		n++
	}
	return n
}
