package mlx5

import (
	"math/bits"
	"unsafe"

	"github.com/goverbs/goverbs/uverbs"
)

// The fast path handles a request with one SGE or inline data that is a send, a write or a read
// on an RC or UC QP. It exists in two forms, since a request is passed as a SendWR (PostSend's
// loop and encodeInline) or as arguments (OpSGE and OpInline, and Op with SGE and Inline). Tests
// compare what they write. A request that the fast path cannot encode goes to opRest, opSGERest
// and so on with all its arguments, before anything is written. setLimit sends all requests there:
// it sets the limit to the head.
//
// Op, OpSGE, OpInline and encodeInline call no function before the request is written, not even
// one that the compiler would inline, except to copy long inline data. They write values in the
// order in which they arrive. This keeps the number of live values small and makes a request a
// third cheaper. Indices are masked: see views_unsafe.go.

// Op implements driver.QP.
//
//go:nosplit
func (q *qp) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	s := &q.sq
	w, head := s.words[op&15], s.head
	if head == s.limit || int(f) >= len(s.flags) || w&wordRare != 0 {
		q.opRest(op, f, wrID, raddr, rkey, imm)
		return
	}
	cur := s.cur
	i := cur & s.mask
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[op&15]
	s.request.state, s.request.named = requestEmpty, op
	b := (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	b[2] = bits.ReverseBytes64(raddr)
	b[3] = uint64(bits.ReverseBytes32(rkey))
	ctrl, data := s.flags[f], i*blockSize+dataRemote
	if int64(w) < 0 {
		if w&wordImm != 0 {
			ctrl |= bits.ReverseBytes64(uint64(imm))
		}
		if w&wordLocal != 0 {
			data = i*blockSize + dataLocal
		}
		w &= wordPlain
	}
	b[1] = ctrl
	b[0] = bits.ReverseBytes64(w | uint64(cur&0xffff)<<wordIndex)
	s.head, s.cur, s.request.data = head+1, cur+1, data
}

// SGE implements driver.QP.
//
//go:nosplit
func (q *qp) SGE(sge uverbs.SGE) {
	s := &q.sq
	r := &s.request
	if r.state != requestEmpty || sge.Length-1 >= uverbs.MaxMessage-1 {
		q.sgeRest(sge)
		return
	}
	r.state, r.length = requestOneSGE, sge.Length
	g := s.dataIn(r.data)
	g[0] = bits.ReverseBytes64(uint64(sge.Length)<<32 | uint64(sge.LKey))
	g[1] = bits.ReverseBytes64(sge.Addr)
	s.firstIn(r.data)[sizeByte]++
}

// Inline implements driver.QP.
//
//go:nosplit
func (q *qp) Inline(data []byte) {
	s := &q.sq
	r := &s.request
	at, n := r.data, len(data)
	size := uint32(inlineHeader+n+segmentSize-1) / segmentSize
	end := (at + size*segmentSize - 1) / blockSize
	if r.state != requestEmpty || uint(n-1) >= uint(s.maxInline) || end > s.mask || r.named == uverbs.OpRead {
		q.inlineRest(data)
		return
	}
	r.state = requestInlined
	s.last = s.cur - 1
	s.cur += end - at/blockSize
	s.firstIn(at)[sizeByte] += uint8(size)
	g := s.dataIn(at)
	g.inlineHead(n)
	if uint(n-16) <= 16 {
		g.inlineTwo(data)
		return
	}
	g.inlineData(data)
}

// OpSGE implements driver.QP.
//
//go:nosplit
func (q *qp) OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	s := &q.sq
	w, head := s.words[op&15], s.head
	if head == s.limit || int(f) >= len(s.flags) || w&wordRare != 0 || sge.Length-1 >= uverbs.MaxMessage-1 {
		q.opSGERest(op, f, wrID, raddr, rkey, sge)
		return
	}
	s.request.state, s.request.named, s.request.length = requestOneSGE, op, sge.Length
	cur := s.cur
	i := cur & s.mask
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[op&15]
	b := (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	b[2] = bits.ReverseBytes64(raddr)
	b[3] = uint64(bits.ReverseBytes32(rkey))
	g := (*segment)(unsafe.Add(unsafe.Pointer(b), dataRemote))
	if int64(w) < 0 { // wordUncommon is set
		if w&wordLocal != 0 {
			g = (*segment)(unsafe.Add(unsafe.Pointer(b), dataLocal))
		}
		w &= wordPlain
	}
	b[1] = s.flags[f]
	g[0] = bits.ReverseBytes64(uint64(sge.Length)<<32 | uint64(sge.LKey))
	g[1] = bits.ReverseBytes64(sge.Addr)
	b[0] = bits.ReverseBytes64(w + 1 | uint64(cur&0xffff)<<wordIndex)
	s.head, s.cur = head+1, cur+1
}

// OpInline implements driver.QP.
//
//go:nosplit
func (q *qp) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	s := &q.sq
	w, n, i := s.words[op&15], len(data), s.cur&s.mask
	if uint(n-1) >= uint(s.maxInline) || i > s.lastInline || s.head == s.limit || int(f) >= len(s.flags) ||
		w&wordNotInline != 0 {
		q.opInlineRest(op, f, wrID, raddr, rkey, data)
		return
	}
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.meta = s.metas[op&15]
	b := (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	b[1] = s.flags[f]
	b[2] = bits.ReverseBytes64(raddr)
	b[3] = uint64(bits.ReverseBytes32(rkey))
	head := s.head + 1
	note.wrID, note.end = wrID, head
	s.request.state, s.head = requestInlined, head
	g := unsafe.Add(unsafe.Pointer(b), dataRemote)
	if int64(w) < 0 { // wordUncommon is set
		if w&wordLocal != 0 {
			g = unsafe.Add(unsafe.Pointer(b), dataLocal)
		}
		w &= wordPlain
	}
	w += uint64(inlineHeader+n+segmentSize-1) / segmentSize
	cur := s.cur
	s.last, s.cur = cur, cur+uint32(w&wordSize+perBlock-1)/perBlock
	b[0] = bits.ReverseBytes64(w | uint64(cur&0xffff)<<wordIndex)
	*(*segment)(unsafe.Add(g, (inlineHeader+n-1)&^(segmentSize-1))) = segment{}
	*(*uint32)(g) = bits.ReverseBytes32(inlineMark | uint32(n))
	if uint(n-segmentSize) > segmentSize {
		(*segment)(g).inlineData(data)
		return
	}
	from := unsafe.Pointer(unsafe.SliceData(data))
	*(*segment)(unsafe.Add(g, inlineHeader)) = *(*segment)(from)
	*(*segment)(unsafe.Add(g, inlineHeader+n-segmentSize)) = *(*segment)(unsafe.Add(from, n-segmentSize))
}

// encodeInline is OpInline for a SendWR. It reports whether it encoded the request.
//
//go:noinline
//go:nosplit
func (s *sendQueue) encodeInline(wr *uverbs.SendWR) bool {
	op, f, n, i := uint32(wr.Opcode), uint32(wr.Flags), len(wr.Inline), s.cur&s.mask
	if uint(n-1) >= uint(s.maxInline) || i > s.lastInline || s.head == s.limit || op >= 16 || f >= 8 || len(wr.SGL) != 0 {
		return false
	}
	w, ctrl := s.words[op], s.flags[f]
	b := (*block)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	g := unsafe.Add(unsafe.Pointer(b), dataRemote)
	if int64(w) < 0 {
		if w&wordNotInline != 0 {
			return false
		}
		if w&wordImm != 0 {
			ctrl |= bits.ReverseBytes64(uint64(wr.Imm))
		}
		if w&wordLocal != 0 {
			g = unsafe.Add(unsafe.Pointer(b), dataLocal)
		}
		w &= wordPlain
	}
	b[1] = ctrl
	b[2] = bits.ReverseBytes64(wr.RemoteAddr)
	b[3] = uint64(bits.ReverseBytes32(wr.RKey))
	w += uint64(inlineHeader+n+segmentSize-1) / segmentSize
	cur, head := s.cur, s.head+1
	b[0] = bits.ReverseBytes64(w | uint64(cur&0xffff)<<wordIndex)
	s.head, s.last, s.cur = head, cur, cur+uint32(w&wordSize+perBlock-1)/perBlock
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wr.WRID, head, s.metas[op]
	*(*segment)(unsafe.Add(g, (inlineHeader+n-1)&^(segmentSize-1))) = segment{}
	*(*uint32)(g) = bits.ReverseBytes32(inlineMark | uint32(n))
	if uint(n-segmentSize) > segmentSize {
		(*segment)(g).inlineData(wr.Inline)
		return true
	}
	from := unsafe.Pointer(unsafe.SliceData(wr.Inline))
	*(*segment)(unsafe.Add(g, inlineHeader)) = *(*segment)(from)
	*(*segment)(unsafe.Add(g, inlineHeader+n-segmentSize)) = *(*segment)(unsafe.Add(from, n-segmentSize))
	return true
}
