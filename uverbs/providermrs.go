package uverbs

import (
	"sync"
	"sync/atomic"
)

// A ProviderStorer is a [ProviderContext] of a device that may leave it to the CPU
// to copy short messages to the memory of their SGEs, or to copy the beginning of a
// frame from there.
type ProviderStorer interface {
	// StoreIn is called once, before any object is created.
	StoreIn(m *ProviderMRs)
}

// ProviderMRs gives access to the memory of a Context's MRs. Queues use it through
// a [ProviderMRUser].
type ProviderMRs struct {
	pages   [1 << (keyBits - placeBits)]atomic.Pointer[placePage]
	foreign atomic.Int64 // number of MRs whose memory is not the process's

	pageable atomic.Bool // see Pageable

	mu sync.Mutex // held to change what pages lead to

	usersMu sync.Mutex
	users   *ProviderMRUser // list of users that have called Begin
}

// The lowest byte of a key is not part of the device's numbering. Half of the other
// bits select a page.
const (
	keyShift  = 8
	keyBits   = 24
	placeBits = 12
	placeMask = 1<<placeBits - 1
)

type placePage [1 << placeBits]atomic.Pointer[place]

// A place is the entry of a local key. Entries of keys that differ only in the
// lowest byte form a list.
type place struct {
	key  uint32
	next atomic.Pointer[place]
	view atomic.Pointer[mrView] // nil after leave
}

// Foreign reports whether any MR has memory that Store cannot write: memory of a
// dma-buf or of another process.
func (m *ProviderMRs) Foreign() bool { return m != nil && m.foreign.Load() > 0 }

// Pageable reports whether the device may find pages of an MR absent. This is so
// once an MR has been registered with OnDemand, or by another process, which may
// have used OnDemand.
func (m *ProviderMRs) Pageable() bool { return m != nil && m.pageable.Load() }

// head returns the head of a key's list. The caller holds m.mu.
func (m *ProviderMRs) head(key uint32) *atomic.Pointer[place] {
	i := key >> keyShift
	page := &m.pages[i>>placeBits]
	if page.Load() == nil {
		page.Store(new(placePage))
	}
	return &page.Load()[i&placeMask]
}

// enter adds the MR of r.
func (m *ProviderMRs) enter(r *registration) {
	if m == nil {
		return
	}
	if r.view.foreign {
		m.foreign.Add(1)
	}
	m.note(r.view)
	r.place = &place{key: r.view.lkey}
	r.place.view.Store(r.view)
	m.mu.Lock()
	defer m.mu.Unlock()
	// It goes first: the kernel may reuse a key before the goroutine that closes the
	// key's last MR has called leave.
	head := m.head(r.place.key)
	r.place.next.Store(head.Load())
	head.Store(r.place)
}

// note updates what Pageable reports, before anything can be posted with v.
func (m *ProviderMRs) note(v *mrView) {
	if v.onDemand || v.foreign {
		m.pageable.Store(true)
	}
}

// follow updates the entry of an MR whose memory, access or key has changed.
func (m *ProviderMRs) follow(r *registration) {
	p := r.place
	if m == nil || p == nil {
		return
	}
	if p.key != r.view.lkey {
		m.leave(r)
		m.enter(r)
		return
	}
	m.note(r.view)
	was := p.view.Swap(r.view)
	m.settle()
	if was.foreign && !r.view.foreign {
		m.foreign.Add(-1)
	}
}

// leave removes the entry of r and waits until no goroutine accesses its memory any
// more.
func (m *ProviderMRs) leave(r *registration) {
	p := r.place
	if m == nil || p == nil {
		return
	}
	r.place = nil
	was := p.view.Swap(nil)
	m.settle()
	if was.foreign {
		m.foreign.Add(-1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.head(p.key)
	for x := at.Load(); x != p; x = at.Load() {
		at = &x.next
	}
	at.Store(p.next.Load())
}
