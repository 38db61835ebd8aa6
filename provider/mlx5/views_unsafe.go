package mlx5

import (
	"math/bits"
	"unsafe"

	"github.com/goverbs/goverbs/uverbs"
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

// What follows are elements of the send queue's views without the check of their
// index, which costs every request several instructions. The caller has masked
// it, with what is one less than the number of elements. Where there are none,
// there is no room either, so that nothing is written.

func (s *sendQueue) blockIn(i uint32) *block {
	return (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*unsafe.Sizeof(block{})))
}

func (s *sendQueue) noteIn(i uint32) *sendNote {
	return (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
}

// dataIn is the segment that begins at byte at of the ring.
func (s *sendQueue) dataIn(at uint32) *segment {
	return (*segment)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(at)))
}

// firstIn is the first word of the block that byte at of the ring lies in.
func (s *sendQueue) firstIn(at uint32) *[8]uint8 {
	return (*[8]uint8)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(at&^(blockSize-1))))
}

// segment is the k-th of a block.
func (b *block) segment(k uintptr) *segment {
	return (*segment)(unsafe.Add(unsafe.Pointer(b), k%perBlock*segmentSize))
}

// An inline segment is 4 bytes of length, then data, then zeros up to a multiple of
// 16. It may go on in the blocks behind, but not reach the ring's end. inlineHead
// writes it without the data, of which there is at least a byte. Of the others
// inlineTwo is for 16 to 32 bytes, and inlined.
func (g *segment) inlineHead(n int) {
	head := unsafe.Pointer(g)
	*(*segment)(unsafe.Add(head, (inlineHeader+n-1)&^(segmentSize-1))) = segment{}
	*(*uint32)(head) = bits.ReverseBytes32(inlineMark | uint32(n))
}

// inlineData copies by words that overlap: a call of copy would cost more.
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
	*(*[2]uint64)(unsafe.Add(unsafe.Pointer(g), inlineHeader+last)) = *(*[2]uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(data)), last))
}

// entryAt is at, without the check of the index.
func (q *cq) entryAt(i uint32) *block {
	return (*block)(unsafe.Add(unsafe.Pointer(q.first), uintptr(i&q.mask)*q.stride))
}

// wcWords is a WC as words, which takes six stores where its fields take twice as
// many. A test compares the two.
type wcWords [6]uint64

const (
	wcWRID = iota
	wcTimestamp
	wcLength  // and above it what comes with the message
	wcNumbers // of the QP, and of the sender's above
	wcVendor
	wcKind // status, opcode, flags, service level, path
)

// Shifts in words of a WC: of the word wcVendor the first, else of wcKind.
const (
	wcSLID     = 48
	wcOpcode   = 8
	wcFlags    = 16
	wcSL       = 24
	wcPathBits = 32
)

func wordsOfWC(wc *uverbs.WC) *wcWords { return (*wcWords)(unsafe.Pointer(wc)) }

const _ = -(unsafe.Sizeof(uverbs.WC{}) ^ unsafe.Sizeof(wcWords{})) // are of one size
