package uverbs

import (
	"sync"
	"sync/atomic"
)

// A ProviderStorer is a [ProviderContext] of a device that may leave it to the
// CPU to put short messages where their SGEs say, or to take the beginning of a
// frame from there.
type ProviderStorer interface {
	// StoreIn is called once, before anything is made.
	StoreIn(m *ProviderMRs)
}

// ProviderMRs is the memory that a Context's MRs name. Queues reach it by a
// [ProviderMRUser].
type ProviderMRs struct {
	pages   [1 << (keyBits - placeBits)]atomic.Pointer[placePage]
	foreign atomic.Int64 // MRs of memory that the process does not have

	mu sync.Mutex // held to change what the pages lead to

	usersMu sync.Mutex
	users   *ProviderMRUser // those that have ever begun
}

// Devices count their keys above the lowest byte. Half of the rest chooses a page.
const (
	keyShift  = 8
	keyBits   = 24
	placeBits = 12
	placeMask = 1<<placeBits - 1
)

type placePage [1 << placeBits]atomic.Pointer[place]

// A place is what a local key leads to. Places of keys that differ in the lowest
// byte alone are a list.
type place struct {
	key  uint32
	next atomic.Pointer[place]
	view atomic.Pointer[mrView] // nil once the MR has let go of it
}

// Foreign tells whether some MR is of memory that Store cannot write: a dma-buf's,
// or another process's.
func (m *ProviderMRs) Foreign() bool { return m != nil && m.foreign.Load() > 0 }

// head is where the list of a key begins. The caller holds m.mu.
func (m *ProviderMRs) head(key uint32) *atomic.Pointer[place] {
	i := key >> keyShift
	page := &m.pages[i>>placeBits]
	if page.Load() == nil {
		page.Store(new(placePage))
	}
	return &page.Load()[i&placeMask]
}

// enter makes known what r has registered.
func (m *ProviderMRs) enter(r *registration) {
	if m == nil {
		return
	}
	if r.view.foreign {
		m.foreign.Add(1)
	}
	r.place = &place{key: r.view.lkey}
	r.place.view.Store(r.view)
	m.mu.Lock()
	defer m.mu.Unlock()
	// In front: the kernel may give a key again before the one who closes its last
	// MR has come to leave.
	head := m.head(r.place.key)
	r.place.next.Store(head.Load())
	head.Store(r.place)
}

// follow is for an MR whose memory, access or key has changed.
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
	was := p.view.Swap(r.view)
	m.settle()
	if was.foreign && !r.view.foreign {
		m.foreign.Add(-1)
	}
}

// leave waits until nobody writes to the memory of r any more, and forgets it.
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
