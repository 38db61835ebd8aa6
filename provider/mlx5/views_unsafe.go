package mlx5

import (
	"math/bits"
	"unsafe"

	"github.com/goverbs/goverbs/uverbs"
)

// This file converts mapped memory to typed views. Each view is cut from a byte slice of at least
// its size, which bounds it. Mappings are page aligned and offsets are multiples of the element
// size, so all views are aligned. The mapping outlives the view: an object with a view also
// refers to the mapping.

// A block is the unit of a send queue, and also a CQE: 8 words in big-endian byte order.
type block [8]uint64

// A segment is a part of a send request, or an element of a receive.
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

func uint32sOf(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func wordsOf(b []byte) *[2]uint32 { return (*[2]uint32)(unsafe.Pointer(&b[:8][0])) }

func wordOf(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(&b[:4][0])) }

func registerOf(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(&b[:8][0])) }

func bytesOf(b *block) *[64]byte { return (*[64]byte)(unsafe.Pointer(b)) }

// addressOf returns the address of b for the kernel. b is not Go memory, so it does not move.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// endOf returns the address after the last block.
func endOf(b []block) *[64]byte {
	return (*[64]byte)(unsafe.Add(unsafe.Pointer(&b[0]), len(b)*int(unsafe.Sizeof(b[0]))))
}

// The following methods return elements of the send queue's views without a bounds check, which
// would cost every request several instructions. The caller masks the index with the number of
// elements minus 1. A queue without elements has no room for requests, so nothing is written to
// it.

func (s *sendQueue) blockIn(i uint32) *block {
	return (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*unsafe.Sizeof(block{})))
}

// dataIn returns the segment that begins at byte at of the ring.
func (s *sendQueue) dataIn(at uint32) *segment {
	return (*segment)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(at)))
}

// firstIn returns the first word of the block that contains byte at of the ring.
func (s *sendQueue) firstIn(at uint32) *[8]uint8 {
	return (*[8]uint8)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(at&^(blockSize-1))))
}

// An inline segment has 4 bytes of length, then data, then zeros up to a multiple of 16. It may
// extend to the following blocks, but not past the end of the ring. inlineHead writes it without
// the data, which has at least one byte. inlineData copies the data. inlineTwo does the same for
// 16 to 32 bytes, and is inlined by the compiler.
func (g *segment) inlineHead(n int) {
	head := unsafe.Pointer(g)
	*(*segment)(unsafe.Add(head, (inlineHeader+n-1)&^(segmentSize-1))) = segment{}
	*(*uint32)(head) = bits.ReverseBytes32(inlineMark | uint32(n))
}

// inlineData copies overlapping words, because a call of copy would cost more.
func (g *segment) inlineData(data []byte) {
	n := uintptr(len(data))
	to, from := unsafe.Add(unsafe.Pointer(g), inlineHeader), unsafe.Pointer(unsafe.SliceData(data))
	if n < 16 {
		for i := range n {
			*(*byte)(unsafe.Add(to, i)) = *(*byte)(unsafe.Add(from, i))
		}
		return
	}
	for i := uintptr(0); i < n-16; i += 16 {
		*(*[2]uint64)(unsafe.Add(to, i)) = *(*[2]uint64)(unsafe.Add(from, i))
	}
	g.inlineTail(data)
}

func (g *segment) inlineTwo(data []byte) {
	*(*[2]uint64)(unsafe.Add(unsafe.Pointer(g), inlineHeader)) = *(*[2]uint64)(unsafe.Pointer(unsafe.SliceData(data)))
	g.inlineTail(data)
}

func (g *segment) inlineTail(data []byte) {
	last := uintptr(len(data)) - 16
	from := unsafe.Add(unsafe.Pointer(unsafe.SliceData(data)), last)
	*(*[2]uint64)(unsafe.Add(unsafe.Pointer(g), inlineHeader+last)) = *(*[2]uint64)(from)
}

// entryAt is at without the bounds check.
func (q *cq) entryAt(i uint32) *block {
	return (*block)(unsafe.Add(unsafe.Pointer(q.first), uintptr(i&q.mask)*q.stride))
}

// wcWords is a WC as words, so that writing it takes six stores, half as many as writing its
// fields. A test compares the two.
type wcWords [6]uint64

const (
	wcWRID = iota
	wcTimestamp
	wcLength  // and in the upper half the immediate data or key
	wcNumbers // the QP's number, and in the upper half the sender's
	wcVendor
	wcKind // status, opcode, flags, service level, path
)

// Shifts in the words of a WC. wcSLID is a shift in wcVendor, the others are in wcKind.
const (
	wcSLID     = 48
	wcOpcode   = 8
	wcFlags    = 16
	wcSL       = 24
	wcPathBits = 32
)

func wordsOfWC(wc *uverbs.WC) *wcWords { return (*wcWords)(unsafe.Pointer(wc)) }

const _ = -(unsafe.Sizeof(uverbs.WC{}) ^ unsafe.Sizeof(wcWords{})) // the sizes are equal
