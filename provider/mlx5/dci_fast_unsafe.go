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
// OpSGE and OpInline write a request except its address and leave it at sendQueue.cur, in the state
// requestUnaddressed. DCAddr writes the address and completes the request.
type dci struct {
	qp
	words     [16]uint64 // as sendQueue.words
	streams   uint16     // mask of the streams that requests may name
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
	b[2] = bits.ReverseBytes64(key)
	b[3] = av[1] | uint64(bits.ReverseBytes32(dctn|extendedAV))
	*b.segment(2) = *(*segment)(unsafe.Pointer(&av[2]))
	*b.segment(3) = *(*segment)(unsafe.Pointer(&av[4]))
}

// Sizes of requests of the fast path without data, in segments.
const (
	dcSegments    = ctrlSegments + datagramSegments
	dcBlocks      = 2 // with one SGE
	overheadDCInl = segmentSize*raddrSegments + inlineHeader
)

// configure sets what depends on the configuration, as that of the send queue has.
func (q *dci) configure(cfg *uverbs.QPConfig) {
	s := &q.sq
	for i, o := range s.ops {
		q.words[i] = wordUncommon | wordRare | wordNotInline
		if opsRC[i]&simple == 0 || s.maxSGE == 0 {
			continue
		}
		q.words[i] = o.hw()<<32 | s.qpn | (dcSegments + raddrSegments)
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
	if cfg.DCIStreams.Concurrent > 0 {
		q.streams = 1<<16 - 1
	}
	if s.burstSGE >= dcBlocks {
		q.burst = dcBlocks
	}
	q.inlineEnd = s.mask + 1 - min(s.mask+1, uint32(overheadDCInl+s.maxInline+blockSize-1)/blockSize)
}

// adjacentLimit returns the limit up to which requests of two blocks can be encoded, each in adjacent blocks: at the
// ring's last block, the second one is elsewhere.
func (s *sendQueue) adjacentLimit() uint32 {
	if s.cur&1 == 0 {
		return s.limit
	}
	return s.head + min(s.limit-s.head, (s.mask-s.cur&s.mask)/dcBlocks)
}

// PostSend implements driver.QP, as qp.PostSend does for other QPs.
//
//go:nosplit
func (q *dci) PostSend(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	if len(wrs) > 0 && len(wrs[0].Inline) > 0 {
		return q.postInline(wrs)
	}
	wrs = wrs[:len(wrs):len(wrs)] // one value fewer in registers
	cur, head := s.cur, s.head
	if s.limit-head < uint32(len(wrs)) && s.fence == 0 {
		s.limit = atomic.LoadUint32(s.tail) + s.maxPost
	}
	n, limit := 0, s.adjacentLimit()
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		op, f, ah := uint32(wr.Opcode), uint32(wr.Flags), provider.AHOf(wr.AH)
		if head == limit || op >= 16 || f >= 8 || len(wr.SGL) != 1 || len(wr.Inline) != 0 || ah == nil ||
			ah.PD() != s.pd {
			return q.postRest(wrs, n, cur, head)
		}
		sge := unsafe.SliceData(wr.SGL)
		if sge.Length-1 >= uverbs.MaxMessage-1 || wr.DCStream&^q.streams != 0 {
			return q.postRest(wrs, n, cur, head)
		}
		i := cur & s.mask
		w, ctrl, b := q.words[op], s.flags[f]|be(uint64(wr.DCStream)<<wordStream), s.blocksIn(i)
		g := b.segment(5)
		if int64(w) < 0 { // wordUncommon is set
			if w&wordRare != 0 {
				return q.postRest(wrs, n, cur, head)
			}
			if w&wordImm != 0 {
				ctrl |= be(uint64(wr.Imm))
			}
			if w&wordLocal != 0 {
				g = b.segment(4)
			}
			w &= wordPlain
		}
		b[1] = ctrl
		b[8], b[9] = be(wr.RemoteAddr), be4(wr.RKey)
		g[0], g[1] = be2(sge.Length, sge.LKey), be(sge.Addr)
		b.address(ah.AV(), wr.QPN, wr.DCKey)
		b[0] = be(w + 1 | uint64(cur&0xffff)<<wordIndex)
		head++
		note := s.noteIn(i)
		note.wrID, note.end, note.meta = wr.WRID, head, s.metas[op]
		cur += dcBlocks
	}
	if n == 0 || s.shared != nil {
		return q.postRest(wrs, n, cur, head)
	}
	burst := q.burst
	if n > 1 {
		burst = 0
	}
	s.cur, s.head, s.last = cur, head, cur-dcBlocks
	mmio.Ring(&s.db, cur&0xffff, bytesOf(s.blockIn((cur-dcBlocks)&s.mask)), burst)
	runtime.KeepAlive(q)
	return n, nil
}

// postInline is PostSend for a list that begins with inline data.
//
//go:noinline
func (q *dci) postInline(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	first := s.cur
	s.request.state = requestInlined
	if len(wrs) > 1 || s.shared != nil || !q.encodeInline(&wrs[0]) {
		return q.postRest(wrs, 0, first, s.head)
	}
	burst := uint64(s.cur - first)
	if burst > s.burst {
		burst = 0
	}
	mmio.Ring(&s.db, s.cur&0xffff, bytesOf(s.blockIn(first&s.mask)), burst)
	runtime.KeepAlive(q)
	return 1, nil
}

// postRest continues a PostSend that has encoded n requests, up to cur and head, and rings the doorbell for all.
//
//go:noinline
func (q *dci) postRest(wrs []uverbs.SendWR, n int, cur, head uint32) (int, error) {
	s := &q.sq
	first := s.cur
	if n > 0 {
		s.cur, s.head, s.last = cur, head, cur-dcBlocks
	}
	s.request.state = requestClosed
	var err error
	for ; n < len(wrs); n++ {
		if len(wrs[n].Inline) > 0 && q.encodeInline(&wrs[n]) {
			s.request.state = requestInlined
			continue
		}
		if err = q.encode(&wrs[n]); err != nil {
			break
		}
	}
	s.ring(n, first)
	runtime.KeepAlive(q)
	return n, err
}

// encodeInline is OpInline and DCAddr for a SendWR. It reports whether it encoded the request.
//
//go:noinline
//go:nosplit
func (q *dci) encodeInline(wr *uverbs.SendWR) bool {
	s := &q.sq
	op, f, n, i, ah := uint32(wr.Opcode), uint32(wr.Flags), len(wr.Inline), s.cur&s.mask, provider.AHOf(wr.AH)
	if uint(n-1) >= uint(s.maxInline) || i >= q.inlineEnd || s.head == s.limit || op >= 16 || f >= 8 ||
		len(wr.SGL) != 0 || wr.DCStream&^q.streams != 0 || ah == nil || ah.PD() != s.pd {
		return false
	}
	w, ctrl, b := q.words[op], s.flags[f], s.blocksIn(i)
	g := b.segment(5)
	if int64(w) < 0 {
		if w&wordNotInline != 0 {
			return false
		}
		if w&wordImm != 0 {
			ctrl |= be(uint64(wr.Imm))
		}
		if w&wordLocal != 0 {
			g = b.segment(4)
		}
		w &= wordPlain
	}
	b[1] = ctrl | be(uint64(wr.DCStream)<<wordStream)
	b[8], b[9] = be(wr.RemoteAddr), be4(wr.RKey)
	b.address(ah.AV(), wr.QPN, wr.DCKey)
	w += uint64(inlineHeader+n+segmentSize-1) / segmentSize
	cur, head := s.cur, s.head+1
	b[0] = be(w | uint64(cur&0xffff)<<wordIndex)
	s.head, s.last, s.cur = head, cur, cur+uint32(w&wordSize+perBlock-1)/perBlock
	note := s.noteIn(i)
	note.wrID, note.end, note.meta = wr.WRID, head, s.metas[op]
	g.inlineHead(n)
	if uint(n-16) <= 16 {
		g.inlineTwo(wr.Inline)
		return true
	}
	g.inlineData(wr.Inline)
	return true
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
	b[0] = bits.ReverseBytes64(w + 1 | uint64(cur&0xffff)<<wordIndex)
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
	w += uint64(inlineHeader+n+segmentSize-1) / segmentSize
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
	if r.state != requestUnaddressed || stream&^q.streams != 0 || ah == nil || ah.PD() != s.pd {
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
