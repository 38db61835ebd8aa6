package bnxt_re

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/provider"
)

// Mappings begin at a page, and what follows checks that a view is inside and aligned.

// slotsOf returns the first n slots of a ring.
func slotsOf(m *provider.Mapping, n int) []slotWords {
	b := m.Bytes()[:n*slotSize]
	return unsafe.Slice((*slotWords)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// wordsOf returns n words at an offset, a multiple of 8.
func wordsOf(m *provider.Mapping, off, n int) []uint64 {
	b := m.Bytes()[off:][:8*n]
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// halvesOf is like wordsOf, for words of 4 bytes.
func halvesOf(m *provider.Mapping, off, n int) []uint32 {
	b := m.Bytes()[off:][:4*n]
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// entriesOf returns the entries of a CQ.
func entriesOf(m *provider.Mapping, n int) []cqe {
	b := m.Bytes()[:n*entrySize]
	return unsafe.Slice((*cqe)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// addressOf returns the address of a mapping for the kernel. It is not Go memory, so it does not move.
func addressOf(m *provider.Mapping) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes()))))
}

// The following methods return elements without a bounds check, which would cost every request several instructions.

// A head is the first slots of a request with one SGE.
type head [headSlots + 1]slotWords

// head returns the slots of a request. The caller checks that they do not go on at the beginning of the ring.
func (s *sendQueue) head(slot uint32) *head {
	return (*head)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.ring)), uintptr(slot)*slotSize))
}

// slots returns those of the next receive.
func (r *recvQueue) slots() *head {
	return (*head)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.ring)), uintptr(r.number*r.stride)*slotSize))
}

// wrID returns the WRID of a receive by its number, which is less than size.
func (r *recvQueue) wrID(number uint32) *uint64 {
	return (*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.wrIDs)), uintptr(number)*unsafe.Sizeof(r.wrIDs[0])))
}

// note returns the note of a request by its count. There is at least one note.
func (s *sendQueue) note(count uint32) *note {
	i := uintptr(count & uint32(len(s.notes)-1))
	return (*note)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), i*unsafe.Sizeof(note{})))
}

// entry returns the next entry of the ring.
func (q *cq) entry() *cqe {
	return (*cqe)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(q.ring)), uintptr(q.head)*entrySize))
}

// setInline writes inline data, which is not empty, and zeros up to the end of the last slot. Data of at least a slot
// is copied by slots, the last of which may overlap the one before.
//
//go:nosplit
func (h *head) setInline(data []byte) {
	from, to, n := unsafe.Pointer(unsafe.SliceData(data)), unsafe.Pointer(&h[headSlots]), uintptr(len(data))
	*(*slotWords)(unsafe.Add(to, (n-1)&^(slotSize-1))) = slotWords{}
	if n < slotSize {
		copy(h[headSlots].bytesOf()[:], data)
		return
	}
	for i := uintptr(0); i < n-slotSize; i += slotSize {
		*(*slotWords)(unsafe.Add(to, i)) = *(*slotWords)(unsafe.Add(from, i))
	}
	*(*slotWords)(unsafe.Add(to, n-slotSize)) = *(*slotWords)(unsafe.Add(from, n-slotSize))
}

// bytesOf returns a slot as bytes.
func (s *slotWords) bytesOf() *[slotSize]byte { return (*[slotSize]byte)(unsafe.Pointer(s)) }
