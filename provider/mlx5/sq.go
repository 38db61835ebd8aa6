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

	db       mmio.Doorbell
	burst    uint64    // blocks that the register takes
	burstSGE uint64    // of a request without inline data
	single   uint64    // of such a request of one block
	shared   *register // nil: the register is the queue's own

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
func (s *sendQueue) describe(u *uverbs.QP, cfg *uverbs.QPConfig, z *sizes) {
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
		s.ops, s.frames = &raw, newFrameQueue(u, z.header)
	case uverbs.UD:
		s.ops, s.pd, s.maxMessage = &datagrams, uverbs.ProviderPDOf(u), 0
		s.mtu = func() uint64 { return uverbs.ProviderMTU(u) }
	}
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

// encode writes wr if it is of the most common kind, one SGE that is sent,
// written or read, on a connected QP. It calls nothing, so that all it works on
// stays in registers.
//
//go:noinline
func (s *sendQueue) encode(wr *uverbs.SendWR) bool {
	sgl := wr.SGL
	if wr.Opcode >= 16 || wr.Flags > callerFlags || len(sgl) != 1 || len(wr.Inline) != 0 || s.head == s.limit || s.fence != 0 {
		return false
	}
	o := s.ops[wr.Opcode&15]
	// The length has 31 bits, of which none stand for 2^31, and none is no data.
	if o&simple == 0 || sgl[0].Length-1 >= uverbs.MaxMessage-1 {
		return false
	}
	i := s.cur & s.mask
	b, note := &s.blocks[i], &s.notes[i]
	var tail uint32
	if o&imm != 0 {
		tail = wr.Imm
	}
	head := uint64(s.cur&0xffff)<<40 | o.hw()<<32 | s.qpn
	b[1] = be(uint64(s.ce[wr.Flags&7])<<32 | uint64(tail))
	if o&remote != 0 {
		b[0] = be(head | 3)
		b[2] = be(wr.RemoteAddr)
		b[3] = be(uint64(wr.RKey) << 32)
		b[4] = be(uint64(sgl[0].Length)<<32 | uint64(sgl[0].LKey))
		b[5] = be(sgl[0].Addr)
	} else {
		b[0] = be(head | 2)
		b[2] = be(uint64(sgl[0].Length)<<32 | uint64(sgl[0].LKey))
		b[3] = be(sgl[0].Addr)
	}
	s.head++
	note.wrID = wr.WRID
	note.end = s.head
	note.meta = o.meta()
	s.last = s.cur
	s.cur++
	return true
}

// encodeInline writes wr if it is of the next common kind: inline data that is
// sent or written, on a connected QP.
func (s *sendQueue) encodeInline(wr *uverbs.SendWR) bool {
	n := len(wr.Inline)
	if wr.Opcode >= 16 || wr.Flags > callerFlags || len(wr.SGL) != 0 || n == 0 || n > s.maxInline || s.head == s.limit || s.fence != 0 {
		return false
	}
	o := s.ops[wr.Opcode&15]
	if o&(simple|scatter) != simple {
		return false
	}
	i := s.cur & s.mask
	b, note := &s.blocks[i], &s.notes[i]
	var tail uint32
	if o&imm != 0 {
		tail = wr.Imm
	}
	k := uint32(ctrlSegments)
	if o&remote != 0 {
		b[2] = be(wr.RemoteAddr)
		b[3] = be(uint64(wr.RKey) << 32)
		k = ctrlSegments + raddrSegments
	}
	size := k + uint32(inlineHeader+n+segmentSize-1)/segmentSize
	b[0] = be(uint64(s.cur&0xffff)<<40 | o.hw()<<32 | s.qpn | uint64(size))
	b[1] = be(uint64(s.ce[wr.Flags&7])<<32 | uint64(tail))
	s.head++
	note.wrID = wr.WRID
	note.end = s.head
	note.meta = o.meta()
	s.copyInline(s.cur, k, wr.Inline)
	s.last = s.cur
	s.cur += (size + perBlock - 1) / perBlock
	return true
}

// PostSend implements uverbs.ProviderQP.
func (q *qp) PostSend(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	first := s.cur
	if len(wrs) == 1 && s.shared == nil && s.encode(&wrs[0]) { // one block
		mmio.Ring(&s.db, (first+1)&0xffff, bytesOf(&s.blocks[first&s.mask]), s.single)
		runtime.KeepAlive(q)
		return 1, nil
	}
	var err error
	n := 0
	for ; n < len(wrs); n++ {
		if s.encode(&wrs[n]) || s.encodeInline(&wrs[n]) {
			continue
		}
		if err = s.encodeAny(&wrs[n]); err != nil {
			break
		}
	}
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
