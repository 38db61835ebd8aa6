package efa

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/provider"
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

// bytesOf returns a descriptor as the bytes that are copied to the device.
func bytesOf(w *sendWQE) *[sendSize]byte { return (*[sendSize]byte)(unsafe.Pointer(w)) }

// inline returns the bytes for data.
func (w *sendWQE) inline() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&w[4])), maxInline) }
