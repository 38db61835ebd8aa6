package irdma

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/provider"
)

// Mappings begin at a page, and what follows checks that a view is inside and aligned.

// quantaOf returns n quanta of a ring that begins at an offset, a multiple of 32.
func quantaOf(m *provider.Mapping, off, n int) []quantum {
	b := m.Bytes()[off:][:n*quantumSize]
	return unsafe.Slice((*quantum)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// entriesOf returns the entries of a CQ.
func entriesOf(m *provider.Mapping, n int) []cqe {
	b := m.Bytes()[:n*entrySize]
	return unsafe.Slice((*cqe)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// shadowOf returns a CQ's shadow area at an offset, a multiple of 8.
func shadowOf(m *provider.Mapping, off int) *shadow {
	b := m.Bytes()[off:][:shadowSize]
	return (*shadow)(unsafe.Pointer(unsafe.SliceData(b)))
}

// registerAt returns a register at an offset, a multiple of 4.
func registerAt(m *provider.Mapping, off int) *uint32 {
	b := m.Bytes()[off:][:4]
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(b)))
}

// addressOf returns the address of a mapping for the kernel. It is not Go memory, so it does not move.
func addressOf(m *provider.Mapping) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Bytes()))))
}

// bytesOf returns quanta as bytes.
func bytesOf(q []quantum) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q))), len(q)*quantumSize)
}
