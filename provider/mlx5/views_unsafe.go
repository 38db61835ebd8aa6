package mlx5

import (
	"unsafe"
)

// This file is the one place that turns mapped memory into typed views. Each
// view is cut from a byte slice of at least its size, which bounds it; mappings
// are page aligned and offsets multiples of the element, so all is aligned. The
// mapping outlives the view: whoever holds a view holds the mapping beside it.

// A block is a send queue's unit, and a CQE: 8 words in the byte order of the
// wire.
type block [8]uint64

// A segment is a part of a request.
type segment [2]uint64

func blocksOf(b []byte) []block {
	return unsafe.Slice((*block)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(block{})))
}

func segmentsOf(b []byte) []segment {
	return unsafe.Slice((*segment)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(segment{})))
}

func notesOf(b []byte) []sendNote {
	return unsafe.Slice((*sendNote)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(sendNote{})))
}

func uint64sOf(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

func wordsOf(b []byte) *[2]uint32 { return (*[2]uint32)(unsafe.Pointer(&b[:8][0])) }

func wordOf(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(&b[:4][0])) }

func registerOf(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(&b[:8][0])) }

func bytesOf(b *block) *[64]byte { return (*[64]byte)(unsafe.Pointer(b)) }

// addressOf is where b lies, for the kernel. b is no Go memory, so it does not
// move.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// endOf is the address behind the last block.
func endOf(b []block) *[64]byte {
	return (*[64]byte)(unsafe.Add(unsafe.Pointer(&b[0]), len(b)*int(unsafe.Sizeof(b[0]))))
}
