package mlx5

import (
	"math/bits"
	"unsafe"

	"github.com/goverbs/goverbs/uverbs"
)

// What follows are operations with their data, made the short way where both can
// be. Each is for one opcode, and nothing is left to functions that would be
// inlined: the compiler keeps the order of what is written so, in which no value
// has to be put aside. What views_unsafe.go says of indices holds here.

// WriteSGE implements uverbs.ProviderQP, as the methods below.
//
//go:nosplit
func (q *qp) WriteSGE(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	s := &q.sq
	w, head := s.words[uverbs.OpWrite], s.batch.head
	if int64(w) < 0 || f >= 8 || head == s.limit || sge.Length-1 >= uverbs.MaxMessage-1 {
		q.moreWriteSGE(f, wrID, raddr, rkey, sge)
		return
	}
	cur := s.batch.cur
	i := cur & s.mask
	b := (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	b[0] = bits.ReverseBytes64(w + 1 | uint64(cur&0xffff)<<wordIndex)
	b[1] = s.flags[f]
	b[2] = bits.ReverseBytes64(raddr)
	b[3] = uint64(bits.ReverseBytes32(rkey))
	b[4] = bits.ReverseBytes64(uint64(sge.Length)<<32 | uint64(sge.LKey))
	b[5] = bits.ReverseBytes64(sge.Addr)
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[uverbs.OpWrite]
	s.batch.cur, s.batch.head = cur+1, head+1
	s.batch.at = -int32(i*blockSize + dataRemote)
}

// SendSGE is WriteSGE for what has no remote address.
//
//go:nosplit
func (q *qp) SendSGE(f uverbs.SendFlags, wrID uint64, sge uverbs.SGE) {
	s := &q.sq
	w, head := s.words[uverbs.OpSend], s.batch.head
	if w&wordRare != 0 || f >= 8 || head == s.limit || sge.Length-1 >= uverbs.MaxMessage-1 {
		q.moreSendSGE(f, wrID, sge)
		return
	}
	cur := s.batch.cur
	i := cur & s.mask
	b := (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	b[0] = bits.ReverseBytes64(w&wordPlain + 1 | uint64(cur&0xffff)<<wordIndex)
	b[1] = s.flags[f]
	b[2] = bits.ReverseBytes64(uint64(sge.Length)<<32 | uint64(sge.LKey))
	b[3] = bits.ReverseBytes64(sge.Addr)
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[uverbs.OpSend]
	s.batch.cur, s.batch.head = cur+1, head+1
	s.batch.at = -int32(i*blockSize + dataLocal)
}

// WriteInline takes the short way for data that does not go around the ring's end.
//
//go:nosplit
func (q *qp) WriteInline(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	s := &q.sq
	w, head := s.words[uverbs.OpWrite], s.batch.head
	if int64(w) < 0 || f >= 8 || head == s.limit {
		q.moreWriteInline(f, wrID, raddr, rkey, data)
		return
	}
	n := len(data)
	data = data[:n:n] // one value less to hold
	cur := s.batch.cur
	i := cur & s.mask
	b := (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	b[1] = s.flags[f]
	b[2] = bits.ReverseBytes64(raddr)
	b[3] = uint64(bits.ReverseBytes32(rkey))
	w |= uint64(cur&0xffff) << wordIndex
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[uverbs.OpWrite]
	s.batch.head = head + 1
	size := uint32(inlineHeader+n+segmentSize-1) / segmentSize
	more := (dataRemote/segmentSize + size - 1) / perBlock // blocks, behind the first
	if uint(n-1) >= uint(s.maxInline) || i+more > s.mask {
		b[0] = bits.ReverseBytes64(w)
		s.batch.cur = cur + 1
		s.batch.at = int32(i*blockSize + dataRemote)
		q.moreInline(data)
		return
	}
	b[0] = bits.ReverseBytes64(w + uint64(size))
	s.batch.cur = cur + more + 1
	s.batch.at = int32(i)*-blockSize - dataRemote
	*(*segment)(unsafe.Add(unsafe.Pointer(b), dataRemote+(inlineHeader+n-1)&^(segmentSize-1))) = segment{}
	*(*uint32)(unsafe.Pointer(&b[4])) = bits.ReverseBytes32(inlineMark | uint32(n))
	if uint(n-segmentSize) > segmentSize {
		b.segment(2).inlineData(data)
		return
	}
	to, from := unsafe.Add(unsafe.Pointer(b), n), unsafe.Pointer(unsafe.SliceData(data))
	*(*segment)(unsafe.Add(unsafe.Pointer(b), dataRemote+inlineHeader)) = *(*segment)(from)
	*(*segment)(unsafe.Add(to, dataRemote+inlineHeader-segmentSize)) = *(*segment)(unsafe.Add(from, n-segmentSize))
}

// SendInline is WriteInline for what has no remote address.
//
//go:nosplit
func (q *qp) SendInline(f uverbs.SendFlags, wrID uint64, data []byte) {
	s := &q.sq
	w, head := s.words[uverbs.OpSend], s.batch.head
	if w&wordRare != 0 || f >= 8 || head == s.limit {
		q.moreSendInline(f, wrID, data)
		return
	}
	n := len(data)
	data = data[:n:n]
	cur := s.batch.cur
	i := cur & s.mask
	b := (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	b[1] = s.flags[f]
	w = w&wordPlain | uint64(cur&0xffff)<<wordIndex
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[uverbs.OpSend]
	s.batch.head = head + 1
	size := uint32(inlineHeader+n+segmentSize-1) / segmentSize
	more := (dataLocal/segmentSize + size - 1) / perBlock
	if uint(n-1) >= uint(s.maxInline) || i+more > s.mask {
		b[0] = bits.ReverseBytes64(w)
		s.batch.cur = cur + 1
		s.batch.at = int32(i*blockSize + dataLocal)
		q.moreInline(data)
		return
	}
	b[0] = bits.ReverseBytes64(w + uint64(size))
	s.batch.cur = cur + more + 1
	s.batch.at = int32(i)*-blockSize - dataLocal
	*(*segment)(unsafe.Add(unsafe.Pointer(b), dataLocal+(inlineHeader+n-1)&^(segmentSize-1))) = segment{}
	*(*uint32)(unsafe.Pointer(&b[2])) = bits.ReverseBytes32(inlineMark | uint32(n))
	if uint(n-segmentSize) > segmentSize {
		b.segment(1).inlineData(data)
		return
	}
	to, from := unsafe.Add(unsafe.Pointer(b), n), unsafe.Pointer(unsafe.SliceData(data))
	*(*segment)(unsafe.Add(unsafe.Pointer(b), dataLocal+inlineHeader)) = *(*segment)(from)
	*(*segment)(unsafe.Add(to, dataLocal+inlineHeader-segmentSize)) = *(*segment)(unsafe.Add(from, n-segmentSize))
}
