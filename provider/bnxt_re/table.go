package bnxt_re

import (
	"sync"
	"sync/atomic"
)

// A table finds the QP that a completion names by its handle: an index, and in the upper half how many QPs have had
// the index. No handle is used twice, so that a completion of a QP that has been closed names none.
type table struct {
	mu    sync.Mutex // of changes
	free  []uint32   // indices
	used  uint32     // indices that have been used
	pages [maxQPs / pageQPs]atomic.Pointer[page]
}

const (
	pageQPs = 1 << 9
	maxQPs  = 1 << 18
)

type page [pageQPs]slot

type slot struct {
	qp         atomic.Pointer[qp]
	generation uint32
}

// get returns the QP with a handle, or nil.
func (t *table) get(handle uint64) *qp {
	i := uint32(handle)
	if i >= maxQPs {
		return nil
	}
	p := t.pages[i/pageQPs].Load()
	if p == nil {
		return nil
	}
	q := p[i%pageQPs].qp.Load()
	if q == nil || q.handle != handle {
		return nil
	}
	return q
}

// add gives a QP its handle.
func (t *table) add(q *qp) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var i uint32
	switch n := len(t.free); {
	case n > 0:
		i, t.free = t.free[n-1], t.free[:n-1]
	case t.used == maxQPs:
		return errQPs
	default:
		i = t.used
		t.used++
	}
	p := &t.pages[i/pageQPs]
	if p.Load() == nil {
		p.Store(new(page))
	}
	s := &p.Load()[i%pageQPs]
	s.generation++
	q.handle = uint64(s.generation)<<32 | uint64(i)
	s.qp.Store(q)
	return nil
}

// remove removes a QP.
func (t *table) remove(q *qp) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := uint32(q.handle)
	if t.pages[i/pageQPs].Load()[i%pageQPs].qp.CompareAndSwap(q, nil) {
		t.free = append(t.free, i)
	}
}
