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

type page [1 << 8]atomic.Pointer[qp]

// get returns the QP with a number, or nil.
func (t *table) get(number uint16) *qp {
	p := t.pages[number>>8].Load()
	if p == nil {
		return nil
	}
	return p[number&0xff].Load()
}

func (t *table) put(number uint16, q *qp) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := &t.pages[number>>8]
	if at.Load() == nil {
		at.Store(new(page))
	}
	at.Load()[number&0xff].Store(q)
}

// remove removes a QP, unless its number already belongs to another one.
func (t *table) remove(q *qp) {
	if p := t.pages[q.number>>8].Load(); p != nil {
		p[q.number&0xff].CompareAndSwap(q, nil)
	}
}
