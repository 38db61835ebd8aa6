package efa

import (
	"sync"
	"sync/atomic"
)

// A table finds the QP that a completion names. QPNs have 16 bits.
type table struct {
	mu    sync.Mutex // of changes
	pages [1 << 8]atomic.Pointer[page]
}

type page [1 << 8]slot

// A slot is what is known of a QPN.
type slot struct {
	qp         atomic.Pointer[qp]
	generation atomic.Uint32 // QPs with this number so far, and their resets
}

// get returns the QP with a number, or nil. used reports whether a QP has had the number.
func (t *table) get(number uint16) (q *qp, used bool) {
	p := t.pages[number>>8].Load()
	if p == nil {
		return nil, false
	}
	s := &p[number&0xff]
	return s.qp.Load(), s.generation.Load() != 0
}

// at returns the slot of a number.
func (t *table) at(number uint16) *slot {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &t.pages[number>>8]
	if p.Load() == nil {
		p.Store(new(page))
	}
	return &p.Load()[number&0xff]
}

// next begins a generation of a number.
func (t *table) next(number uint16) uint32 { return t.at(number).generation.Add(1) }

func (t *table) put(q *qp) { t.at(q.number).qp.Store(q) }

// remove removes a QP, unless its number already belongs to another one.
func (t *table) remove(q *qp) { t.at(q.number).qp.CompareAndSwap(q, nil) }
