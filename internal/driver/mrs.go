package driver

import (
	"sync"
	"sync/atomic"
)

// MRs gives access to the memory of a Context's MRs. Queues use it through an
// [MRUser]. A nil MRs has none.
type MRs struct {
	pages   [1 << (keyBits - entryBits)]atomic.Pointer[entryPage]
	foreign atomic.Int64 // see Foreign

	pageable atomic.Bool // see Pageable

	mu sync.Mutex // held to change what pages lead to

	usersMu sync.Mutex
	users   *MRUser // list of users that have called Begin
}

// The lowest byte of a key is not part of the device's numbering. Half of the other
// bits select a page.
const (
	keyShift  = 8
	keyBits   = 24
	entryBits = 12
	entryMask = 1<<entryBits - 1
)

type entryPage [1 << entryBits]atomic.Pointer[MREntry]

// A Region is the memory of an MR.
type Region struct {
	Buf      []byte // nil if the memory is not the process's, or is its whole address space
	Addr     uint64 // of the first byte, in work requests
	LKey     uint32
	Whole    bool // the MR is the whole address space
	Foreign  bool // the memory is not the process's, or the CPU must not write it
	Writable bool // the MR has LocalWrite
	OnDemand bool // the memory is not pinned
}

// An MREntry is the entry of a local key. Entries of keys that differ only in the
// lowest byte form a list.
type MREntry struct {
	key    uint32
	next   atomic.Pointer[MREntry]
	region atomic.Pointer[Region] // nil after Remove
	first  Region                 // the initial one, which most MRs keep
}

// Foreign reports whether there is memory that Store cannot write: that of an MR of a
// dma-buf or of another process, or of a key that the library knows nothing of.
func (m *MRs) Foreign() bool { return m != nil && m.foreign.Load() > 0 }

// AddUnknown makes Foreign and Pageable report memory with a key that no MR has, until
// RemoveUnknown.
func (m *MRs) AddUnknown() {
	if m != nil {
		m.foreign.Add(1)
		m.pageable.Store(true)
	}
}

// RemoveUnknown undoes one AddUnknown.
func (m *MRs) RemoveUnknown() {
	if m != nil {
		m.foreign.Add(-1)
	}
}

// Pageable reports whether the device may find pages of an MR absent. This is so
// once an MR has been registered with OnDemand, or by another process, which may
// have used OnDemand.
func (m *MRs) Pageable() bool { return m != nil && m.pageable.Load() }

// head returns the head of a key's list. The caller holds m.mu.
func (m *MRs) head(key uint32) *atomic.Pointer[MREntry] {
	i := key >> keyShift
	page := &m.pages[i>>entryBits]
	if page.Load() == nil {
		page.Store(new(entryPage))
	}
	return &page.Load()[i&entryMask]
}

// Add adds an MR and returns its entry.
func (m *MRs) Add(r Region) *MREntry {
	if m == nil {
		return nil
	}
	if r.Foreign {
		m.foreign.Add(1)
	}
	m.setPageable(&r)
	p := &MREntry{key: r.LKey, first: r}
	p.region.Store(&p.first)
	m.mu.Lock()
	defer m.mu.Unlock()
	// It goes first: the kernel may reuse a key before the goroutine that closes the
	// key's last MR has called Remove.
	head := m.head(p.key)
	p.next.Store(head.Load())
	head.Store(p)
	return p
}

// setPageable updates what Pageable reports, before anything can be posted with r.
func (m *MRs) setPageable(r *Region) {
	if r.OnDemand || r.Foreign {
		m.pageable.Store(true)
	}
}

// Replace updates the entry of an MR whose memory, access or key has changed, and
// returns the entry.
func (m *MRs) Replace(p *MREntry, r Region) *MREntry {
	if m == nil || p == nil {
		return nil
	}
	if p.key != r.LKey {
		m.Remove(p)
		return m.Add(r)
	}
	m.setPageable(&r)
	was := p.region.Swap(&r)
	m.waitForUsers()
	if was.Foreign && !r.Foreign {
		m.foreign.Add(-1)
	}
	return p
}

// Remove removes an entry and waits until no goroutine accesses its memory any more.
func (m *MRs) Remove(p *MREntry) {
	if m == nil || p == nil {
		return
	}
	was := p.region.Swap(nil)
	m.waitForUsers()
	if was.Foreign {
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
