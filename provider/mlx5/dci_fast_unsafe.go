package mlx5

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// dci implements driver.QP for a DCI. It has a fast path of its own, for the requests for which other QPs have one:
// see send_fast_unsafe.go. A request has two blocks or more. The first has the control segment and the address, the
// others begin with the remote address, or, for a SEND, with the data.
//
// encodeSGE, encodeRemote and encodeInline repeat each other, so that no request pays for further calls: see
// send_fast_unsafe.go.
//
// OpSGE and OpInline write a request except its address and leave it at sendQueue.cur, in the state
// requestUnaddressed. DCAddr writes the address and completes the request.
type dci struct {
	qp
	words     [16]uint64 // as sendQueue.words, but with one segment of data
	inlineEnd uint32     // block, masked, from which on inline data of any size may reach the ring's end
	burst     uint64     // size of a burst of a request without inline data, in blocks
}

// twoBlocks are two adjacent blocks of the ring.
type twoBlocks [16]uint64

// blocksIn returns block i, which is not the last one, and the block after it. It does not check i: see
// views_unsafe.go.
func (s *sendQueue) blocksIn(i uint32) *twoBlocks {
	return (*twoBlocks)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
}

// segment returns segment k.
func (b *twoBlocks) segment(k uintptr) *segment {
	return (*segment)(unsafe.Add(unsafe.Pointer(b), k%(2*perBlock)*segmentSize))
}

// address writes the address of a DCT: see setDCSeg.
func (b *twoBlocks) address(av *driver.AV, dctn uint32, key uint64) {
	b[3] = av[1] | uint64(bits.ReverseBytes32(dctn|extendedAV))
	b[2] = bits.ReverseBytes64(key)
	*(*segment)(unsafe.Pointer(&b[4])) = *(*segment)(unsafe.Pointer(&av[2]))
	*(*segment)(unsafe.Pointer(&b[6])) = *(*segment)(unsafe.Pointer(&av[4]))
}

// Sizes of requests of the fast path without data, in segments.
const (
	dcSegments    = ctrlSegments + datagramSegments
	dcBlocks      = 2 // with one SGE
	overheadDCInl = segmentSize*raddrSegments + inlineHeader
)

// configure sets what depends on the configuration, as that of the send queue has.
func (q *dci) configure() {
	s := &q.sq
	for i, o := range s.ops {
		q.words[i] = wordUncommon | wordRare | wordNotInline
		if opsRC[i]&simple == 0 || s.maxSGE == 0 {
			continue
		}
		q.words[i] = o.hw()<<32 | s.qpn | (dcSegments + raddrSegments + 1)
		if o&remote == 0 {
			q.words[i] += wordUncommon | wordLocal - raddrSegments
		}
		if o&imm32 != 0 {
			q.words[i] |= wordUncommon | wordImm
		}
		if o&scatter != 0 {
			q.words[i] |= wordUncommon | wordNotInline
		}
	}
	if s.burstSGE >= dcBlocks {
		q.burst = dcBlocks
	}
	q.inlineEnd = s.mask + 1 - min(s.mask+1, uint32(overheadDCInl+s.maxInline+blockSize-1)/blockSize)
}

// PostSend implements driver.QP. It posts a single request if no other queue uses the register, and postList posts the
// others.
//
//go:nosplit
func (q *dci) PostSend(wrs []uverbs.SendWR) (int, error) {
	if len(wrs) != 1 || q.sq.shared != nil {
		return q.postList(wrs)
	}
	s := &q.sq
	wrs = wrs[:1:1] // its length needs no register
	if len(wrs[0].Inline) > 0 {
		if burst := q.encodeInline(&wrs[0]); burst > 0 {
			if burst > s.burst {
				burst = 0
			}
			mmio.Ring(&s.db, s.cur&0xffff, bytesOf(s.blockIn(s.last&s.mask)), burst)
			runtime.KeepAlive(q)
			return 1, nil
		}
	} else if b := q.encodeSGE(&wrs[0]); b != nil {
		mmio.Ring(&s.db, s.cur&0xffff, (*[blockSize]byte)(unsafe.Pointer(b)), q.burst)
		runtime.KeepAlive(q)
		return 1, nil
	}
	return q.postList(wrs)
}

// postList is PostSend for any list.
//
//go:noinline
func (q *dci) postList(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	first := s.cur
	s.request.state = requestClosed
	if s.limit-s.head < uint32(len(wrs)) && s.fence == 0 {
		s.limit = atomic.LoadUint32(s.tail) + s.maxPost
	}
	n, err := q.encodeList(wrs), error(nil)
	for n < len(wrs) && err == nil {
		if err = q.encode(&wrs[n]); err == nil {
			n++
			n += q.encodeList(wrs[n:])
		}
	}
	s.ring(n, first)
	runtime.KeepAlive(q)
	return n, err
}

// encodeList encodes requests until one needs another path. It returns how many it encoded.
//
//go:noinline
func (q *dci) encodeList(wrs []uverbs.SendWR) int {
	s := &q.sq
	n := 0
	for n < len(wrs) {
		if len(wrs[n].Inline) > 0 {
			more := q.encodeInlines(wrs[n:])
			if more == 0 {
				break
			}
			s.request.state = requestInlined
			n += more
			continue
		}
		if more := q.encodeRemote(wrs[n:]); more > 0 {
			s.last = s.cur - dcBlocks
			n += more
			continue
		}
		if q.encodeSGE(&wrs[n]) == nil {
			break
		}
		n++
	}
	return n
}

// encodeInlines is encodeInline for a list. It returns how many requests it encoded.
//
//go:nosplit
func (q *dci) encodeInlines(wrs []uverbs.SendWR) int {
	for n := range wrs {
		if q.encodeInline(&wrs[n]) == 0 {
			return n
		}
	}
	return len(wrs)
}

// encodeRemote is encodeSGE for a list of requests with a remote address, without a call for each. It returns how many
// it encoded. The caller sets sendQueue.last.
//
//go:noinline
//go:nosplit
func (q *dci) encodeRemote(wrs []uverbs.SendWR) int {
	s := &q.sq
	n := 0
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		op, f, cur, head, ah := uint32(wr.Opcode), uint32(wr.Flags), s.cur, s.head, provider.AHOf(wr.AH)
		i := cur & s.mask
		if op >= 16 || f >= 8 || len(wr.SGL)^1|len(wr.Inline) != 0 || head == s.limit || i == s.mask || ah == nil ||
			ah.PD() != s.pd {
			return n
		}
		sge := unsafe.SliceData(wr.SGL)
		buffer := (*segment)(unsafe.Pointer(sge))[1] // Length, and in the upper half LKey
		if uint32(buffer)-1 >= uverbs.MaxMessage-1 {
			return n
		}
		w, ctrl := q.words[op], s.flags[f]
		if wr.DCStream != 0 {
			if !s.streams {
				return n
			}
			ctrl |= bits.ReverseBytes64(uint64(wr.DCStream) << wordStream)
		}
		if int64(w) < 0 { // wordUncommon is set
			if w&(wordRare|wordLocal) != 0 {
				return n
			}
			if w&wordImm != 0 {
				ctrl |= bits.ReverseBytes64(uint64(wr.Imm))
			}
			w &= wordPlain
		}
		b := (*twoBlocks)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
		b[1] = ctrl
		b[0] = bits.ReverseBytes64(w | uint64(cur&0xffff)<<wordIndex)
		b[8] = bits.ReverseBytes64(wr.RemoteAddr)
		b[9] = uint64(bits.ReverseBytes32(wr.RKey))
		b[10] = bits.ReverseBytes64(bits.RotateLeft64(buffer, 32))
		b[11] = bits.ReverseBytes64(sge.Addr)
		head++
		note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
		note.wrID, note.end, note.meta = wr.WRID, head, s.metas[op]
		s.cur, s.head = cur+dcBlocks, head
		b.address(provider.AHOf(wr.AH).AV(), wr.QPN, wr.DCKey)
	}
	return n
}

// encodeSGE is OpSGE and DCAddr for a SendWR without inline data. It returns nil if it did not encode the request.
//
//go:noinline
//go:nosplit
func (q *dci) encodeSGE(wr *uverbs.SendWR) *twoBlocks {
	s := &q.sq
	op, f, cur, head, ah := uint32(wr.Opcode), uint32(wr.Flags), s.cur, s.head, provider.AHOf(wr.AH)
	i := cur & s.mask
	if op >= 16 || f >= 8 || len(wr.SGL) != 1 || head == s.limit || i == s.mask || ah == nil || ah.PD() != s.pd {
		return nil
	}
	sge := unsafe.SliceData(wr.SGL)
	buffer := (*segment)(unsafe.Pointer(sge))[1] // Length, and in the upper half LKey
	if uint32(buffer)-1 >= uverbs.MaxMessage-1 {
		return nil
	}
	w, ctrl := q.words[op], s.flags[f]
	if wr.DCStream != 0 {
		if !s.streams {
			return nil
		}
		ctrl |= bits.ReverseBytes64(uint64(wr.DCStream) << wordStream)
	}
	b := (*twoBlocks)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	g := (*segment)(unsafe.Pointer(&b[10]))
	if int64(w) < 0 { // wordUncommon is set
		if w&wordRare != 0 {
			return nil
		}
		if w&wordImm != 0 {
			ctrl |= bits.ReverseBytes64(uint64(wr.Imm))
		}
		if w&wordLocal != 0 {
			g = (*segment)(unsafe.Pointer(&b[8]))
		}
		w &= wordPlain
	}
	head++
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wr.WRID, head, s.metas[op]
	s.cur, s.head, s.last = cur+dcBlocks, head, cur
	b[0] = bits.ReverseBytes64(w | uint64(cur&0xffff)<<wordIndex)
	b[1] = ctrl
	b[8] = bits.ReverseBytes64(wr.RemoteAddr)
	b[9] = uint64(bits.ReverseBytes32(wr.RKey))
	g[0] = bits.ReverseBytes64(bits.RotateLeft64(buffer, 32))
	g[1] = bits.ReverseBytes64(sge.Addr)
	b.address(provider.AHOf(wr.AH).AV(), wr.QPN, wr.DCKey) // keeping ah in a register would need a stack frame
	return b
}

// encodeInline is OpInline and DCAddr for a SendWR. It returns the number of blocks, or 0 if it did not encode the
// request.
//
//go:noinline
//go:nosplit
func (q *dci) encodeInline(wr *uverbs.SendWR) uint64 {
	s := &q.sq
	op, f, n, ah := uint32(wr.Opcode), uint32(wr.Flags), len(wr.Inline), provider.AHOf(wr.AH)
	cur, head := s.cur, s.head
	i := cur & s.mask
	if op >= 16 || f >= 8 || len(wr.SGL) != 0 || uint(n-1) >= uint(s.maxInline) || i >= q.inlineEnd ||
		head == s.limit || ah == nil || ah.PD() != s.pd {
		return 0
	}
	w, ctrl := q.words[op], s.flags[f]
	if wr.DCStream != 0 {
		if !s.streams {
			return 0
		}
		ctrl |= bits.ReverseBytes64(uint64(wr.DCStream) << wordStream)
	}
	b := (*twoBlocks)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.blocks)), uintptr(i)*blockSize))
	g := (*segment)(unsafe.Pointer(&b[10]))
	if int64(w) < 0 {
		if w&wordNotInline != 0 {
			return 0
		}
		if w&wordImm != 0 {
			ctrl |= bits.ReverseBytes64(uint64(wr.Imm))
		}
		if w&wordLocal != 0 {
			g = (*segment)(unsafe.Pointer(&b[8]))
		}
		w &= wordPlain
	}
	head++
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wr.WRID, head, s.metas[op]
	s.head, s.last = head, cur
	w += uint64(inlineHeader+n-1) / segmentSize // beyond the first
	b[0] = bits.ReverseBytes64(w | uint64(cur&0xffff)<<wordIndex)
	blocks := (w&wordSize + perBlock - 1) / perBlock
	s.cur = cur + uint32(blocks)
	b[1] = ctrl
	b[8] = bits.ReverseBytes64(wr.RemoteAddr)
	b[9] = uint64(bits.ReverseBytes32(wr.RKey))
	b.address(ah.AV(), wr.QPN, wr.DCKey)
	*(*segment)(unsafe.Add(unsafe.Pointer(g), (inlineHeader+n-1)&^(segmentSize-1))) = segment{}
	*(*uint32)(unsafe.Pointer(g)) = bits.ReverseBytes32(inlineMark | uint32(n))
	if uint(n-segmentSize) > segmentSize {
		g.inlineData(wr.Inline)
		return blocks
	}
	from, to := unsafe.Pointer(unsafe.SliceData(wr.Inline)), unsafe.Add(unsafe.Pointer(g), inlineHeader)
	*(*segment)(to) = *(*segment)(from)
	*(*segment)(unsafe.Add(to, n-segmentSize)) = *(*segment)(unsafe.Add(from, n-segmentSize))
	return blocks
}

// OpSGE implements driver.QP.
//
//go:nosplit
func (q *dci) OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	s := &q.sq
	w, head, cur := q.words[op&15], s.head, s.cur
	i := cur & s.mask
	if head == s.limit || int(f) >= len(s.flags) || w&wordRare != 0 || sge.Length-1 >= uverbs.MaxMessage-1 ||
		s.request.state == requestUnaddressed || i == s.mask {
		q.opSGERest(op, f, wrID, raddr, rkey, sge)
		return
	}
	r := &s.request
	r.state, r.named, r.length, r.data, r.inlined = requestUnaddressed, op, sge.Length, dcBlocks, false
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wrID, head+1, s.metas[op&15]
	b := s.blocksIn(i)
	b[8] = bits.ReverseBytes64(raddr)
	b[9] = uint64(bits.ReverseBytes32(rkey))
	g := b.segment(5)
	if int64(w) < 0 { // wordUncommon is set
		if w&wordLocal != 0 {
			g = b.segment(4)
		}
		w &= wordPlain
	}
	b[1] = s.flags[f]
	g[0] = bits.ReverseBytes64(uint64(sge.Length)<<32 | uint64(sge.LKey))
	g[1] = bits.ReverseBytes64(sge.Addr)
	b[0] = bits.ReverseBytes64(w | uint64(cur&0xffff)<<wordIndex)
}

// OpInline implements driver.QP.
//
//go:nosplit
func (q *dci) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	s := &q.sq
	w, n, i := q.words[op&15], len(data), s.cur&s.mask
	if uint(n-1) >= uint(s.maxInline) || i >= q.inlineEnd || s.head == s.limit || int(f) >= len(s.flags) ||
		w&wordNotInline != 0 || s.request.state == requestUnaddressed {
		q.opInlineRest(op, f, wrID, raddr, rkey, data)
		return
	}
	r := &s.request
	note := (*sendNote)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.notes)), uintptr(i)*unsafe.Sizeof(sendNote{})))
	note.wrID, note.end, note.meta = wrID, s.head+1, s.metas[op&15]
	b := s.blocksIn(i)
	b[1] = s.flags[f]
	b[8] = bits.ReverseBytes64(raddr)
	b[9] = uint64(bits.ReverseBytes32(rkey))
	g := b.segment(5)
	if int64(w) < 0 { // wordUncommon is set
		if w&wordLocal != 0 {
			g = b.segment(4)
		}
		w &= wordPlain
	}
	w += uint64(inlineHeader+n-1) / segmentSize // beyond the first
	r.state, r.named, r.inlined, r.data = requestUnaddressed, op, true, uint32(w&wordSize+perBlock-1)/perBlock
	r.length = uint32(w & wordSize)
	b[0] = bits.ReverseBytes64(w | uint64(s.cur&0xffff)<<wordIndex)
	g.inlineHead(n)
	if uint(n-16) <= 16 {
		g.inlineTwo(data)
		return
	}
	g.inlineData(data)
}

// DCAddr implements driver.QP.
//
//go:nosplit
func (q *dci) DCAddr(ah *driver.AH, dctn uint32, key uint64, stream uint16) {
	s := &q.sq
	r := &s.request
	if r.state != requestUnaddressed || stream != 0 && !s.streams || ah == nil || ah.PD() != s.pd {
		q.dcAddrRest(ah, dctn, key, stream)
		return
	}
	cur := s.cur
	b := s.blocksIn(cur & s.mask)
	if stream != 0 {
		b[1] |= bits.ReverseBytes64(uint64(stream) << wordStream)
	}
	b.address(ah.AV(), dctn, key)
	r.state = requestAddressed
	s.last = cur
	s.cur = cur + r.data
	s.head++
}

//go:noinline
func (q *dci) dcAddrRest(ah *driver.AH, dctn uint32, key uint64, stream uint16) {
	q.sq.dcAddr(ah, dctn, key, stream)
	runtime.KeepAlive(q)
}
