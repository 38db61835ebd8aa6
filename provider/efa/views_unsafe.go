package efa

import (
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// Mappings begin at a page, and what follows checks that a view is inside and aligned.

// sends returns the descriptors in a part of a mapping. off is a multiple of 8.
func sends(m *provider.Mapping, off, n int) []sendWQE {
	b := m.Bytes()[off:][:n*sendSize]
	return unsafe.Slice((*sendWQE)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// recvs returns the descriptors of a receive queue.
func recvs(m *provider.Mapping, n int) []recvWQE {
	b := m.Bytes()[:n*recvSize]
	return unsafe.Slice((*recvWQE)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// entries returns the entries of a part of a CQ. off is a multiple of 8.
func entries(m *provider.Mapping, off, n int) []cqe {
	b := m.Bytes()[off:][:n*entrySize]
	return unsafe.Slice((*cqe)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// wordAt returns a register. off is a multiple of 4.
func wordAt(m *provider.Mapping, off int) *uint32 {
	return (*uint32)(unsafe.Pointer(&m.Bytes()[off:][:4][0]))
}

// The following methods return elements without a bounds check, which would cost every request several instructions.
// A queue without elements has no room for requests, so they are not called.

// at returns a descriptor.
func (s *sendQueue) at(i uint32) *sendWQE {
	return (*sendWQE)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.ring)), uintptr(i&s.mask)*sendSize))
}

func (r *recvQueue) at(i uint32) *recvWQE {
	return (*recvWQE)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.ring)), uintptr(i&r.mask)*recvSize))
}

// number returns an element of the ring of free numbers.
func (r *requests) number(i uint32) *uint16 {
	return (*uint16)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.free)), uintptr(i&r.mask)*unsafe.Sizeof(r.free[0])))
}

// note returns the note of a number, which must be one of the queue.
func (r *requests) note(number uint16) *note {
	return (*note)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.notes)), uintptr(number)*unsafe.Sizeof(note{})))
}

// at returns an entry of a ring, which always has one.
func (s *sub) at(i uint32) *cqe {
	return (*cqe)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.ring)), uintptr(i&s.mask)*entrySize))
}

// page returns an element of the table.
func (t *table) page(i uint8) *atomic.Pointer[page] {
	return (*atomic.Pointer[page])(unsafe.Add(unsafe.Pointer(&t.pages), uintptr(i)*unsafe.Sizeof(t.pages[0])))
}

// A part is half of the data of a sendWQE.
type part [2]uint64

const partSize = 16

func (w *sendWQE) clearData() { *(*[2]part)(unsafe.Pointer(&w[4])) = [2]part{} }

// copyParts writes inline data that has at least the size of a part, by two parts that may overlap.
func (w *sendWQE) copyParts(data []byte) {
	from, to, n := unsafe.Pointer(unsafe.SliceData(data)), unsafe.Pointer(&w[4]), len(data)-partSize
	*(*part)(to) = *(*part)(from)
	*(*part)(unsafe.Add(to, n)) = *(*part)(unsafe.Add(from, n))
}

// wordsOf returns an SGE as a descriptor has it.
func wordsOf(s *uverbs.SGE) (first, second uint64) {
	return (*part)(unsafe.Pointer(s))[1] & (keyMask<<32 | (1<<32 - 1)), s.Addr
}

// bytesOf returns a descriptor as the bytes that are copied to the device.
func bytesOf(w *sendWQE) *[sendSize]byte { return (*[sendSize]byte)(unsafe.Pointer(w)) }

// inline returns the bytes for data.
func (w *sendWQE) inline() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&w[4])), maxInline) }
