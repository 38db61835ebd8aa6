package rdma

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/uverbs"
)

// A Buffer is registered memory. [Conn.Alloc] returns one to be filled and sent without a copy, a [Message] has one,
// and [Conn.BufferOf] returns one in memory of the program. It belongs to the program until it is released or sent.
// Then its memory is used again.
//
// The memory stays mapped, unless it is the program's, which the program may unmap: a slice that is used too late may
// show other data, but does not crash the program. It is not used again before Release, also if the connection is
// closed: the garbage collector does not know it. The methods of a Buffer that has been released do nothing, and
// operations with it return [ErrReleased]. Package verbstest reports both, and a release that was already done.
//
// A Buffer is a small value, to be passed by value. Copies refer to the same memory. Its methods may be
// called concurrently.
type Buffer struct {
	m   *memory
	gen uint32 // of m, when the buffer was taken
}

// memory is a piece of registered memory with its owners: the program, and requests in the send queue.
type memory struct {
	bytes []byte // all of it; nil for a RegionFunc
	size  int
	mr    *uverbs.MR
	off   int // in mr

	// state has the generation in the upper half, whether the program owns the memory in bit 31, and
	// how many requests use it below.
	state atomic.Uint64
	n     atomic.Int64 // the length that the program sees

	pool  *pool    // to which it returns, or nil
	slab  *slab    // of the pool
	user  *account // that counts it, or nil
	conn  *Conn    // whose receive it is, or nil
	slot  int      // of the conn
	reply bool     // the SEND in it was a reply; belongs to conn.mu

	readOnly bool    // of a ReadOnlyRegion
	shared   *shared // whose receive it is, or a copy of one, or nil
	owner    *Conn   // to whose program it belongs, if shared is set
	parent   *memory // of which it is a part, or nil
	next     *memory

	released atomic.Pointer[func()] // ends the watch of a test; nil otherwise
}

const (
	byProgram = 1 << 31
	usesMask  = byProgram - 1
)

// take makes the program the owner of m, which it is not, and returns its buffer.
func (m *memory) take(n int) Buffer {
	m.n.Store(int64(n))
	return Buffer{m, uint32(m.state.Add(byProgram) >> 32)}
}

// hold adds a user to memory that has an owner.
func (m *memory) hold() { m.state.Add(1) }

// drop removes a user.
func (m *memory) drop() { m.giveBack(m.state.Add(^uint64(0))) }

// giveBack returns memory without owner to where it belongs.
func (m *memory) giveBack(s uint64) {
	if s&(byProgram|usesMask) != 0 {
		return
	}
	switch {
	case m.parent != nil:
		m.partDone()
	case m.pool != nil:
		if a := m.user; a != nil {
			m.user = nil
			a.release(int64(len(m.bytes)))
		}
		m.pool.put(m)
	case m.conn != nil:
		m.conn.releaseSlot(m)
	case m.shared != nil:
		owner := m.owner
		m.owner = nil // another connection may have the receive next, and owner may be closed
		owner.releaseShared(m)
	}
}

// partDone takes back a part that nothing uses. A part of a receive is not used again: methods of buffers that were
// released before read its conn.
func (m *memory) partDone() {
	parent := m.parent
	if m.pool != nil {
		m.pool.putPart(m)
	}
	parent.drop()
}

// hold adds a user, unless the program does not own the buffer any more. It reports whether it has. The memory is not
// that of another buffer before drop.
func (b Buffer) hold() bool {
	if b.m == nil {
		return false
	}
	for {
		s := b.m.state.Load()
		if uint32(s>>32) != b.gen || s&byProgram == 0 {
			return false
		}
		if b.m.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// disown ends the program's ownership. It reports whether the program was the owner.
func (b Buffer) disown() bool {
	if b.m == nil {
		return false
	}
	for {
		s := b.m.state.Load()
		if uint32(s>>32) != b.gen || s&byProgram == 0 {
			return false
		}
		released := b.m.released.Load() // as long as the program owns the memory
		t := s&^byProgram + 1<<32       // copies of the buffer are stale from now on
		if b.m.state.CompareAndSwap(s, t) {
			if released != nil {
				(*released)()
				// The next message in the memory may be one of the handshake, which is not watched.
				b.m.released.CompareAndSwap(released, nil)
			}
			b.m.giveBack(t)
			return true
		}
	}
}

// Bytes returns the memory, or nil after Release and for a [RegionFunc]. It must not be used after Release.
func (b Buffer) Bytes() []byte {
	if !b.hold() {
		b.misused("Bytes")
		return nil
	}
	defer b.m.drop()
	if b.m.bytes == nil {
		return nil
	}
	n := b.m.n.Load()
	return b.m.bytes[:n:n]
}

// Len returns the length of the memory in bytes, or 0 after Release.
func (b Buffer) Len() int {
	if !b.hold() {
		return 0
	}
	defer b.m.drop()
	return int(b.m.n.Load())
}

// copyable returns the length of b, and whether its bytes can be copied: not those of a [RegionFunc].
func (b Buffer) copyable() (n int, ok bool) {
	if !b.hold() {
		return 0, true
	}
	defer b.m.drop()
	n = int(b.m.n.Load())
	return n, n == 0 || b.m.bytes != nil
}

// Cap returns up to which length SetLen can extend the memory, or 0 after Release.
func (b Buffer) Cap() int {
	if !b.hold() {
		return 0
	}
	defer b.m.drop()
	return b.m.size
}

// SetLen changes the length of the memory, for example to the length of the data in it. It returns
// [ErrBounds] if n is negative or more than Cap, and [ErrReleased] after Release.
func (b Buffer) SetLen(n int) error {
	if !b.hold() {
		b.misused("SetLen")
		return ErrReleased
	}
	defer b.m.drop()
	if n < 0 || n > b.m.size {
		return fmt.Errorf("%w: SetLen(%d) of a buffer with room for %d bytes (Buffer.Cap)", ErrBounds, n, b.m.size)
	}
	b.m.n.Store(int64(n))
	return nil
}

// Release releases the memory. If an operation whose context ended early still uses it, it is
// released when that has completed. Release may be called after the end of the connection. Further
// calls do nothing.
func (b Buffer) Release() {
	if b.m != nil && !b.disown() {
		b.misused("Release")
	}
}

// received reports whether b is the receive of a message. Only the device of its connection can access it.
func (b Buffer) received() bool { return b.m != nil && (b.m.conn != nil || b.m.shared != nil) }

// withBytes calls f with the bytes of b, which are not given back before f returns.
func (b Buffer) withBytes(method string, f func(p []byte) error) error {
	if !b.hold() {
		b.misused(method)
		return ErrReleased
	}
	defer b.m.drop()
	return f(b.m.bytes[:b.m.n.Load()])
}

// writable returns an error for memory that no device may change.
func (m *memory) writable() error {
	if m.readOnly {
		return ErrReadOnly
	}
	return nil
}

// sge returns what a request needs.
func (m *memory) sge(n int) uverbs.SGE { return m.mr.SGE(m.off, n) }
