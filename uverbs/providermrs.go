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

// ProviderMRs is the memory that a Context's MRs name. Its methods may be
// called from any number of goroutines, and allocate nothing.
type ProviderMRs struct {
	pages   [1 << (keyBits - placeBits)]atomic.Pointer[placePage]
	foreign atomic.Int64 // MRs of memory that the process does not have

	mu sync.Mutex // held to change what the pages lead to
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

	mu   sync.RWMutex // read-held while the memory is written
	view *mrView      // nil once the MR has let go of it
}

// Store writes p where an SGE of that key and address begins, as the device would
// have: it answers false where the key is no open MR's with LocalWrite, or the
// range is not inside it, or not memory that this process has.
func (m *ProviderMRs) Store(lkey uint32, addr uint64, p []byte) bool {
	at := m.find(lkey)
	if at == nil {
		return false
	}
	at.mu.RLock()
	ok := at.view.store(addr, p)
	at.mu.RUnlock()
	return ok
}

// Load reads to p from where an SGE of that key and address begins. It answers false
// as Store does, but for LocalWrite.
func (m *ProviderMRs) Load(lkey uint32, addr uint64, p []byte) bool {
	at := m.find(lkey)
	if at == nil {
		return false
	}
	at.mu.RLock()
	ok := at.view.load(addr, p)
	at.mu.RUnlock()
	return ok
}

// Foreign tells whether some MR is of memory that Store cannot write: a dma-buf's,
// or another process's.
func (m *ProviderMRs) Foreign() bool { return m != nil && m.foreign.Load() > 0 }

func (v *mrView) store(addr uint64, p []byte) bool {
	if v == nil || v.access&LocalWrite == 0 {
		return false
	}
	if v.whole {
		return storeAnywhere(addr, p)
	}
	b := v.part(addr, len(p))
	copy(b, p)
	return b != nil
}

func (v *mrView) load(addr uint64, p []byte) bool {
	if v == nil {
		return false
	}
	if v.whole {
		return loadAnywhere(addr, p)
	}
	b := v.part(addr, len(p))
	copy(p, b)
	return b != nil
}

// part is n bytes of the memory, or nil.
func (v *mrView) part(addr uint64, n int) []byte {
	off, size := addr-v.addr, uint64(len(v.buf))
	if off > size || uint64(n) > size-off {
		return nil
	}
	return v.buf[off:][:n]
}

func (m *ProviderMRs) find(lkey uint32) *place {
	if m == nil {
		return nil
	}
	i := lkey >> keyShift
	page := m.pages[i>>placeBits].Load()
	if page == nil {
		return nil
	}
	p := page[i&placeMask].Load()
	for p != nil && p.key != lkey {
		p = p.next.Load()
	}
	return p
}

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
	r.place = &place{key: r.view.lkey, view: r.view}
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
	p.mu.Lock()
	was := p.view.foreign
	p.view = r.view
	p.mu.Unlock()
	if was && !r.view.foreign {
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
	p.mu.Lock()
	foreign := p.view.foreign
	p.view = nil
	p.mu.Unlock()
	if foreign {
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
