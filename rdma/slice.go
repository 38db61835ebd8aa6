package rdma

import "fmt"

// Slice returns a buffer of n bytes at off of b, without a copy. It belongs to the program beside b, and is sent or
// released like any other: the memory is used again when both are. So one buffer can be sent on several connections at
// the same time, in a slice for each. SetLen of a slice extends it to at most n bytes.
//
// Slice returns [ErrBounds] if the bytes are not within b.Len(), and [ErrReleased] after Release.
func (b Buffer) Slice(off, n int) (Buffer, error) {
	if !b.hold() {
		b.misused("Slice")
		return Buffer{}, ErrReleased
	}
	if room := int(b.m.n.Load()); off < 0 || n < 0 || off > room || n > room-off {
		b.m.drop()
		return Buffer{}, fmt.Errorf("%w: Slice of %d bytes at %d of a buffer of %d", ErrBounds, n, off, room)
	}
	return b.m.part(off, n).takeSlice(n), nil
}

// part returns the n bytes at off of m. The caller's use of m passes to the part. A part of a part uses only what both
// are parts of.
func (m *memory) part(off, n int) *memory {
	var x *memory
	if m.pool != nil {
		x = m.pool.part()
	} else {
		x = &memory{conn: m.conn, shared: m.shared}
	}
	x.parent, x.mr, x.off, x.size, x.readOnly = m, m.mr, m.off+off, n, m.readOnly
	if m.bytes != nil {
		x.bytes = m.bytes[off : off+n : off+n]
	}
	if m.parent != nil {
		x.parent = m.parent
		x.parent.hold()
		m.drop()
	}
	return x
}
