package mlx5

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A sendQueue is the send half of a QP.
//
// Requests are counted twice: cur counts blocks, which is what the device
// counts, and head requests, of which maxPost fit whatever their size. Poll
// stores how many are over to tail.
type sendQueue struct {
	blocks []block
	notes  []sendNote // of the request that begins at that block
	mask   uint32
	cur    uint32
	head   uint32
	limit  uint32 // head must not reach it, as of the last look at tail
	last   uint32 // where the last request begins, in blocks
	fence  uint8  // that the next request must have
	ce     ceTable
	qpn    uint64 // shifted to its place
	ops    *operations

	// Of the common opcodes, and of all flags: see shortcuts.
	words [16]uint64
	metas [16]uint32
	flags [8]uint64

	db       mmio.Doorbell
	burst    uint64    // blocks that the register takes
	burstSGE uint64    // of a request without inline data
	single   uint64    // of such a request of one block
	shared   *register // nil: the register is the queue's own
	careful  bool      // PostSend does not tell by itself: shared, or within
	within   bool      // PostSend is called by goOn

	tail       *uint32
	segments   []segment // the blocks once more
	bytes      []byte    // and once more
	maxPost    uint32
	maxSGE     int
	maxInline  int
	maxMessage uint64
	batch      batch
	bindOf     func(*uverbs.MWBind) (uverbs.ProviderBind, error)

	lead uint32 // segments after the first that name an SRQ: 1 with XRC

	frames *frameQueue // of a raw packet QP alone

	// Of a UD QP alone.
	pd  *uverbs.PD
	mtu func() uint64 // asks for maxMessage
}

// use makes ring the queue's memory. It may be empty: then nothing fits.
func (s *sendQueue) use(ring []byte, notes []sendNote, tail *uint32) {
	s.blocks, s.notes, s.segments, s.bytes, s.tail = blocksOf(ring), notes, segmentsOf(ring), ring, tail
	s.mask = uint32(len(s.blocks)) - 1
	if len(ring) == 0 {
		s.mask = 0
	}
}

// describe sets what the type of the QP and its configuration say.
func (s *sendQueue) describe(u *uverbs.QP, cfg *uverbs.QPConfig, z *sizes, mrs *uverbs.ProviderMRs) {
	s.ops = &connected
	s.ce = newCETable(cfg.SignalAll)
	s.maxPost, s.maxSGE, s.maxInline, s.maxMessage = uint32(z.maxSend), cfg.MaxSendSGE, z.maxInline, uverbs.MaxMessage
	s.limit = s.maxPost
	s.bindOf = func(b *uverbs.MWBind) (uverbs.ProviderBind, error) { return uverbs.ProviderBindOf(b, u) }
	switch cfg.Type {
	case uverbs.UC:
		s.ops = &unacknowledged
	case uverbs.XRCSend:
		s.ops, s.lead = &extended, srqSegments
	case uverbs.RawPacket:
		s.ops, s.frames = &raw, newFrameQueue(u, z.header, mrs)
	case uverbs.UD:
		s.ops, s.pd, s.maxMessage = &datagrams, uverbs.ProviderPDOf(u), 0
		s.mtu = func() uint64 { return uverbs.ProviderMTU(u) }
	}
	s.shortcuts()
}

// reset empties the queue.
func (s *sendQueue) reset() {
	s.cur, s.head, s.limit, s.last, s.fence = 0, 0, s.maxPost, 0, 0
	mmio.Release32(s.tail, 0)
	if s.mtu != nil {
		s.maxMessage = 0 // the port may be another one
	}
	s.begin()
}

// full tells whether there is no room for one more request than head says.
func (s *sendQueue) full(head uint32) bool {
	if head != s.limit {
		return false
	}
	s.limit = atomic.LoadUint32(s.tail) + s.maxPost
	return head == s.limit
}

func (s *sendQueue) outstanding() int { return int(s.head - atomic.LoadUint32(s.tail)) }

// encodeInline writes wr if it is of the next common kind: inline data that is
// sent or written. It calls nothing until the end.
//
//go:noinline
//go:nosplit
func (s *sendQueue) encodeInline(wr *uverbs.SendWR) bool {
	op, f, n := uint32(wr.Opcode), uint32(wr.Flags), len(wr.Inline)
	if s.head == s.limit || op >= 16 || f >= 8 || len(wr.SGL) != 0 || uint(n-1) >= uint(s.maxInline) {
		return false
	}
	w, ctrl := s.words[op], s.flags[f]
	if int64(w) < 0 {
		if w&(wordRare|wordScatter) != 0 {
			return false
		}
		if w&wordImm != 0 {
			ctrl |= be(uint64(wr.Imm))
		}
		w &= wordPlain
	}
	cur := s.cur
	i := cur & s.mask
	at := uint32(w&wordSize) * segmentSize
	w += uint64(inlineHeader+n+segmentSize-1) / segmentSize
	end := i + uint32(w&wordSize+perBlock-1)/perBlock
	if end > s.mask+1 {
		return false // around the ring's end
	}
	b := s.blockIn(i)
	b[0] = be(w | uint64(cur&0xffff)<<wordIndex)
	b[1] = ctrl
	b[2] = be(wr.RemoteAddr)
	b[3] = be4(wr.RKey)
	head := s.head + 1
	note := s.noteIn(i)
	note.wrID, note.end, note.meta = wr.WRID, head, s.metas[op]
	s.head, s.last, s.cur = head, cur, cur-i+end
	g := s.dataIn(i*blockSize + at)
	g.inlineHead(n)
	if uint(n-16) <= 16 {
		g.inlineTwo(wr.Inline)
		return true
	}
	g.inlineData(wr.Inline)
	return true
}

// PostSend implements uverbs.ProviderQP. The loop takes what is most common, one
// SGE that is sent, written or read on a connected QP, and calls nothing, so that
// all it works on stays in registers.
//
//go:nosplit
func (q *qp) PostSend(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	if len(wrs) > 0 && len(wrs[0].Inline) > 0 {
		return q.postInline(wrs)
	}
	cur, head := s.cur, s.head
	n := 0
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		op, f := uint32(wr.Opcode), uint32(wr.Flags)
		if head == s.limit || op >= 16 || f >= 8 || len(wr.SGL) != 1 || len(wr.Inline) != 0 {
			return q.postRest(wrs, n, cur, head)
		}
		// The length has 31 bits, of which none stand for 2^31, and none is no data.
		sge := &wr.SGL[0]
		if sge.Length-1 >= uverbs.MaxMessage-1 {
			return q.postRest(wrs, n, cur, head)
		}
		i := cur & s.mask
		w, ctrl, b := s.words[op], s.flags[f], s.blockIn(i)
		g := b.segment(2)
		if int64(w) < 0 {
			if w&wordRare != 0 {
				return q.postRest(wrs, n, cur, head)
			}
			if w&wordImm != 0 {
				ctrl |= be(uint64(wr.Imm))
			}
			if w&wordLocal != 0 {
				g = b.segment(1) // where a remote address would be
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
	if n == 0 || s.careful {
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

// postInline is PostSend for a list that begins with inline data.
//
//go:noinline
func (q *qp) postInline(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	first := s.cur
	if len(wrs) != 1 || s.careful || !s.encodeInline(&wrs[0]) {
		return q.postInlines(wrs)
	}
	burst := uint64(s.cur - first)
	if burst > s.burst {
		burst = 0
	}
	mmio.Ring(&s.db, s.cur&0xffff, bytesOf(s.blockIn(first&s.mask)), burst)
	runtime.KeepAlive(q)
	return 1, nil
}

// postInlines is postInline for several requests.
//
//go:noinline
func (q *qp) postInlines(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	first, n := s.cur, 0
	for i := range wrs {
		if !s.encodeInline(&wrs[i]) {
			break
		}
		n++
	}
	return q.goOn(wrs, n, first)
}

// postRest goes on with a PostSend that has written n requests of one block each,
// up to cur and head.
//
//go:noinline
func (q *qp) postRest(wrs []uverbs.SendWR, n int, cur, head uint32) (int, error) {
	s := &q.sq
	first := s.cur
	if n > 0 {
		s.cur, s.head, s.last = cur, head, cur-1
	}
	return q.goOn(wrs, n, first)
}

// goOn posts all but the first n of wrs, which have been written from block first
// on, and tells of all. What is common goes back to PostSend, which is careful
// meanwhile: it leaves the telling, and what it does not take, to its caller.
func (q *qp) goOn(wrs []uverbs.SendWR, n int, first uint32) (int, error) {
	s := &q.sq
	if s.within {
		return n, nil
	}
	was := s.careful
	s.careful, s.within = true, true
	var err error
	for n < len(wrs) {
		k, _ := q.PostSend(wrs[n:])
		if n += k; k > 0 {
			continue
		}
		if err = s.encodeAny(&wrs[n]); err != nil {
			s.begin() // a fence waits for the next one still
			break
		}
		n++
	}
	s.careful, s.within = was, false
	if s.cur != first {
		burst := uint64(0)
		if n == 1 {
			burst = s.burstOf(s.cur-first, len(wrs[0].Inline))
		}
		s.tell(burst)
	}
	runtime.KeepAlive(q)
	return n, err
}

// burstOf is how many blocks of a single request go to the register: all, or
// none when it takes none, or not so many. A request without data is told of
// by a word.
func (s *sendQueue) burstOf(blocks uint32, inline int) uint64 {
	most := s.burstSGE
	if inline > 0 {
		most = s.burst
	}
	if uint64(blocks) > most || be(s.blocks[s.last&s.mask][0])&0x3f < 2 {
		return 0
	}
	return uint64(blocks)
}

// tell rings the doorbell for all that has been posted.
func (s *sendQueue) tell(burst uint64) {
	wqe := bytesOf(&s.blocks[s.last&s.mask])
	if s.shared != nil {
		s.shared.ring(&s.db, s.cur&0xffff, wqe, burst)
		return
	}
	mmio.Ring(&s.db, s.cur&0xffff, wqe, burst)
}
