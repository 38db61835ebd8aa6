package mlx5

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// PostSend implements driver.QP. Its loop encodes sends, writes and reads with one SGE on RC
// and UC QPs, as OpSGE does, but without a call, so that all values stay in registers. postInline
// and postRest encode the others.
//
//go:nosplit
func (q *qp) PostSend(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	if len(wrs) > 0 && len(wrs[0].Inline) > 0 {
		return q.postInline(wrs)
	}
	cur, head := s.cur, s.head
	if s.limit-head < uint32(len(wrs)) && s.fence == 0 {
		s.limit = atomic.LoadUint32(s.tail) + s.maxPost
	}
	n := 0
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		op, f := uint32(wr.Opcode), uint32(wr.Flags)
		if head == s.limit || op >= 16 || f >= 8 || len(wr.SGL) != 1 || len(wr.Inline) != 0 {
			return q.postRest(wrs, n, cur, head)
		}
		// On the ring, a length of 0 means 2^31. So postRest encodes both: an empty SGE is left
		// out. 0-1 is the largest number, so one comparison finds lengths that are 0 or too large.
		sge := &wr.SGL[0]
		if sge.Length-1 >= uverbs.MaxMessage-1 {
			return q.postRest(wrs, n, cur, head)
		}
		i := cur & s.mask
		w, ctrl, b := s.words[op], s.flags[f], s.blockIn(i)
		g := b.segment(2)
		if int64(w) < 0 { // wordUncommon is set
			if w&wordRare != 0 {
				return q.postRest(wrs, n, cur, head)
			}
			if w&wordImm != 0 {
				ctrl |= be(uint64(wr.Imm))
			}
			if w&wordLocal != 0 {
				g = b.segment(1)
			}
			w &= wordPlain
		}
		b[1] = ctrl
		b[2] = be(wr.RemoteAddr)
		b[3] = be4(wr.RKey)
		g[0] = be2(sge.Length, sge.LKey)
		g[1] = be(sge.Addr)
		b[0] = be(w + 1 | uint64(cur&0xffff)<<wordIndex)
		head++
		note := s.noteIn(i)
		note.wrID, note.end, note.meta = wr.WRID, head, s.metas[op]
		cur++
	}
	if n == 0 || s.shared != nil {
		return q.postRest(wrs, n, cur, head)
	}
	burst := s.single
	if n > 1 {
		burst = 0
	}
	s.cur, s.head, s.last = cur, head, cur-1
	mmio.Ring(&s.db, cur&0xffff, bytesOf(s.blockIn((cur-1)&s.mask)), burst)
	runtime.KeepAlive(q)
	return n, nil
}

// postRest continues a PostSend that has encoded n requests of one block each,
// up to cur and head, and rings the doorbell for all.
//
//go:noinline
func (q *qp) postRest(wrs []uverbs.SendWR, n int, cur, head uint32) (int, error) {
	s := &q.sq
	first := s.cur
	if n > 0 {
		s.cur, s.head, s.last = cur, head, cur-1
	}
	s.request.state = requestClosed
	return q.postEach(wrs, n, first)
}

// postInline is PostSend for a list that begins with inline data.
//
//go:noinline
func (q *qp) postInline(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	first := s.cur
	s.request.state = requestInlined
	if len(wrs) > 1 || s.shared != nil || !s.encodeInline(&wrs[0]) {
		return q.postEach(wrs, 0, first)
	}
	burst := uint64(s.cur - first)
	if burst > s.burst {
		burst = 0
	}
	mmio.Ring(&s.db, s.cur&0xffff, bytesOf(s.blockIn(first&s.mask)), burst)
	runtime.KeepAlive(q)
	return 1, nil
}

// postEach encodes all but the first n requests, one by one, and rings the
// doorbell for all from block first on.
func (q *qp) postEach(wrs []uverbs.SendWR, n int, first uint32) (int, error) {
	s := &q.sq
	var err error
	for ; n < len(wrs); n++ {
		if len(wrs[n].Inline) > 0 && s.encodeInline(&wrs[n]) {
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

// ring rings the doorbell for the n requests of a list that begin at block first, if there are any.
func (s *sendQueue) ring(n int, first uint32) {
	if s.cur == first {
		return
	}
	burst := uint64(0)
	if n == 1 {
		burst = s.burstOf(s.cur-first, s.request.state == requestInlined)
	}
	s.postSendDB(burst)
}

// encode encodes one request of any kind.
func (q *qp) encode(wr *uverbs.SendWR) error {
	s := &q.sq
	if len(wr.SGL) == 1 && len(wr.Inline) == 0 && wr.Opcode < 16 && s.words[wr.Opcode]&(wordRare|wordImm) == 0 {
		q.OpSGE(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.SGL[0])
	} else {
		s.encodeAny(wr)
	}
	if !s.close() {
		s.request.state = requestClosed
		s.setLimit()
		return s.request.err
	}
	return nil
}

// encodeAny begins a request of any kind and adds all that wr names.
func (s *sendQueue) encodeAny(wr *uverbs.SendWR) {
	imm := wr.Imm
	if wr.Opcode == uverbs.OpSendInv || wr.Opcode == uverbs.OpLocalInv {
		imm = wr.InvalidateRKey
	}
	s.start(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, imm)
	r := &s.request
	if r.state == requestFailed {
		return
	}
	if r.wantsDest {
		s.destOf(wr)
	}
	switch {
	case r.op&operands != 0:
		s.atomic(wr.CompareAdd, wr.Swap)
	case wr.Opcode == uverbs.OpBindMW:
		if len(wr.SGL) > 0 || len(wr.Inline) > 0 {
			s.fail(uverbs.ErrMalformed)
			return
		}
		s.bind(s.owner.Bind(wr))
	case s.typ == uverbs.UD:
		s.udAddr(provider.AHOf(wr.AH), wr.QPN, wr.QKey)
	}
	if len(wr.Inline) > 0 {
		if len(wr.SGL) > 0 && s.frames == nil {
			s.fail(uverbs.ErrMalformed)
			return
		}
		s.inline(wr.Inline)
	}
	for i := range wr.SGL {
		s.sge(wr.SGL[i])
	}
}

// destOf sets the destination of a request of an XRCSend QP or a DCI.
func (s *sendQueue) destOf(wr *uverbs.SendWR) {
	if s.typ == uverbs.DCI {
		s.dcAddr(provider.AHOf(wr.AH), wr.QPN, wr.DCKey, wr.DCStream)
		return
	}
	s.remoteSRQ(wr.RemoteSRQN)
}
