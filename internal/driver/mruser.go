package driver

import (
	"runtime"
	"sync/atomic"
	"time"
)

// An MRUser gives one queue access to the memory of MRs, for data that the
// device leaves to the CPU to write or read. All methods but Leave belong to one
// goroutine at a time. They do not allocate.
//
// Between Begin and End the memory stays valid: closing or changing an MR waits for
// End. So the caller must not block in between.
type MRUser struct {
	turns atomic.Uint32 // odd between Begin and End
	mrs   atomic.Pointer[MRs]

	// Links of the list MRs.users, guarded by usersMu.
	known      bool
	next, prev *MRUser
}

// Open gives u access to the MRs of m. If m is nil, there are none.
func (u *MRUser) Open(m *MRs) { u.mrs.Store(m) }

// Begin must be called before Store, Load and Room.
func (u *MRUser) Begin() {
	if !u.known {
		u.enlist()
	}
	u.turns.Add(1)
}

// End must be called after them.
func (u *MRUser) End() { u.turns.Add(1) }

// Store writes p to the memory of an SGE with this key and address, as the device
// would. It returns false if the key does not belong to an open MR with LocalWrite,
// if the range is not inside the MR, or if this process does not have the memory.
func (u *MRUser) Store(lkey uint32, addr uint64, p []byte) bool {
	v := u.region(lkey)
	if v == nil || !v.Writable {
		return false
	}
	if b := v.part(addr, uint64(len(p))); b != nil {
		copy(b, p)
		return true
	}
	return v.Whole && copyAnywhere(addr, p, true)
}

// Load reads the memory of an SGE with this key and address into p. It returns
// false in the same cases as Store, but does not require LocalWrite.
func (u *MRUser) Load(lkey uint32, addr uint64, p []byte) bool {
	v := u.region(lkey)
	if v == nil {
		return false
	}
	if b := v.part(addr, uint64(len(p))); b != nil {
		copy(p, b)
		return true
	}
	return v.Whole && copyAnywhere(addr, p, false)
}

// Room returns the n bytes that Store would write, for a caller that writes them
// before End. To be fast it covers only the common cases: it may return nil
// although Store would succeed.
func (u *MRUser) Room(lkey uint32, addr uint64, n uint32) []byte {
	p := u.mrs.Load().first(lkey)
	if p == nil || p.key != lkey {
		return nil
	}
	v := p.region.Load()
	if v == nil || !v.Writable {
		return nil
	}
	return v.part(addr, uint64(n))
}

// part returns the n bytes at an address of work requests, or nil if they are not in Buf.
func (r *Region) part(addr, n uint64) []byte {
	off, size := addr-r.Addr, uint64(len(r.Buf))
	if off > size || n > size-off {
		return nil
	}
	return r.Buf[off:][:n]
}

// region returns the memory of the open MR with this key, or nil.
func (u *MRUser) region(lkey uint32) *Region {
	for p := u.mrs.Load().first(lkey); p != nil; p = p.next.Load() {
		if p.key == lkey {
			return p.region.Load()
		}
	}
	return nil
}

// first returns the first entry of the key's list.
func (m *MRs) first(lkey uint32) *MREntry {
	if m == nil {
		return nil
	}
	i := lkey >> keyShift
	page := m.pages[i>>entryBits].Load()
	if page == nil {
		return nil
	}
	return page[i&entryMask].Load()
}

// Leave waits for End and ends u's access to memory. It may be called concurrently
// with the other methods.
func (u *MRUser) Leave() {
	m := u.mrs.Swap(nil)
	if m == nil {
		return
	}
	m.usersMu.Lock()
	defer m.usersMu.Unlock()
	u.waitForEnd()
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

// enlist adds u to the list of users to wait for. Most queues never need it and
// cost waiters nothing.
//
//go:noinline
func (u *MRUser) enlist() {
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

// waitForUsers waits until no user accesses memory that it may have found before the
// call. Users that begin later find the current entries.
func (m *MRs) waitForUsers() {
	m.usersMu.Lock()
	defer m.usersMu.Unlock()
	for u := m.users; u != nil; u = u.next {
		u.waitForEnd()
	}
}

// waitForEnd waits for End if u is between Begin and End.
func (u *MRUser) waitForEnd() {
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
