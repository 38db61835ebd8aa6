package uverbs

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A ProviderMRUser is one queue's way to the memory of MRs, for which the device
// leaves it to the CPU to write or to read it. It belongs to one goroutine at a
// time, but for Leave. Its methods allocate nothing.
//
// Between Begin and End memory stays where it is: an MR that is closed or changed
// beside that waits for End. So nothing is to be waited for in between.
type ProviderMRUser struct {
	turns atomic.Uint32 // odd between Begin and End
	mrs   atomic.Pointer[ProviderMRs]

	// Of the list of those that have begun, under usersMu.
	known      bool
	next, prev *ProviderMRUser
}

// Open has u reach the memory of m. Where m is nil there is none.
func (u *ProviderMRUser) Open(m *ProviderMRs) { u.mrs.Store(m) }

// Begin comes before calls of Store and Load.
func (u *ProviderMRUser) Begin() {
	if !u.known {
		u.enlist()
	}
	u.turns.Add(1)
}

// End comes after them.
func (u *ProviderMRUser) End() { u.turns.Add(1) }

// Store writes p where an SGE of that key and address begins, as the device would
// have: it answers false where the key is no open MR's with LocalWrite, or the
// range is not inside it, or not memory that this process has.
func (u *ProviderMRUser) Store(lkey uint32, addr uint64, p []byte) bool {
	v := u.view(lkey)
	if v == nil || v.access&LocalWrite == 0 {
		return false
	}
	off, size := addr-v.addr, uint64(len(v.buf))
	if off > size || uint64(len(p)) > size-off {
		return v.whole && storeAnywhere(addr, p)
	}
	copy(v.buf[off:], p)
	return true
}

// Load reads to p from where an SGE of that key and address begins. It answers false
// as Store does, but for LocalWrite.
func (u *ProviderMRUser) Load(lkey uint32, addr uint64, p []byte) bool {
	v := u.view(lkey)
	if v == nil {
		return false
	}
	off, size := addr-v.addr, uint64(len(v.buf))
	if off > size || uint64(len(p)) > size-off {
		return v.whole && loadAnywhere(addr, p)
	}
	copy(p, v.buf[off:])
	return true
}

// Room is where Store would write n bytes, for who writes them before End. It is nil
// also where Store may do what this, which is to be fast, does not.
func (u *ProviderMRUser) Room(lkey uint32, addr uint64, n uint32) []byte {
	p := u.mrs.Load().first(lkey)
	if p == nil || p.key != lkey {
		return nil
	}
	v := p.view.Load()
	if v == nil || v.access&LocalWrite == 0 {
		return nil
	}
	off, size := addr-v.addr, uint64(len(v.buf))
	if off > size || uint64(n) > size-off {
		return nil
	}
	return v.buf[off:][:n]
}

// view is what an open MR of that key leads to, or nil.
func (u *ProviderMRUser) view(lkey uint32) *mrView {
	for p := u.mrs.Load().first(lkey); p != nil; p = p.next.Load() {
		if p.key == lkey {
			return p.view.Load()
		}
	}
	return nil
}

// first is where the list begins that a key is in.
func (m *ProviderMRs) first(lkey uint32) *place {
	if m == nil {
		return nil
	}
	i := lkey >> keyShift
	page := m.pages[i>>placeBits].Load()
	if page == nil {
		return nil
	}
	return page[i&placeMask].Load()
}

// Leave waits for End, and has u reach no memory any more. It may be called beside
// the others.
func (u *ProviderMRUser) Leave() {
	m := u.mrs.Swap(nil)
	if m == nil {
		return
	}
	m.usersMu.Lock()
	defer m.usersMu.Unlock()
	u.settle()
	if !u.known {
		return
	}
	if u.prev != nil {
		u.prev.next = u.next
	} else {
		m.users = u.next
	}
	if u.next != nil {
		u.next.prev = u.prev
	}
	u.next, u.prev = nil, nil
}

// enlist makes u known to those who wait. Most queues never come here, and cost
// them nothing.
//
//go:noinline
func (u *ProviderMRUser) enlist() {
	m := u.mrs.Load()
	if m == nil {
		return
	}
	m.usersMu.Lock()
	defer m.usersMu.Unlock()
	if u.mrs.Load() == nil { // it has left
		return
	}
	if u.next = m.users; u.next != nil {
		u.next.prev = u
	}
	m.users, u.known = u, true
}

// settle waits until nobody touches memory that could be found before the call.
// Who begins later finds what is there now.
func (m *ProviderMRs) settle() {
	m.usersMu.Lock()
	defer m.usersMu.Unlock()
	for u := m.users; u != nil; u = u.next {
		u.settle()
	}
}

// settle waits for the End of what has begun.
func (u *ProviderMRUser) settle() {
	const brief = 100
	turn := u.turns.Load()
	if turn&1 == 0 {
		return
	}
	for n := 0; u.turns.Load() == turn; n++ {
		if n < brief {
			runtime.Gosched()
		} else { // its thread is not running
			time.Sleep(10 * time.Microsecond)
		}
	}
}
