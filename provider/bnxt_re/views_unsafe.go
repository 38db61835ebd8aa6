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

// bytesOf returns a slot as bytes.
func (s *slotWords) bytesOf() *[slotSize]byte { return (*[slotSize]byte)(unsafe.Pointer(s)) }
