package mlx5

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A sendQueue is the send half of a QP: struct mlx5_wq of libmlx5 and related state.
//
// cur counts blocks (send WQE basic blocks), as the device does. head counts requests, of which
// maxPost fit whatever their size. Poll stores the number of completed requests in tail.
//
// A post and a batch write in the same way: each request is encoded at cur, then cur and head
// advance. postSendDB notifies the device. Aborting a batch moves cur and head back.
type sendQueue struct {
	blocks []block
	notes  []sendNote // by the first block of the request
	mask   uint32
	cur    uint32
	head   uint32
	// limit is the head at which the fast path ends: see setLimit. It is either head, or the head
	// at which the queue is full as of the last read of tail.
	limit uint32
	last  uint32 // first block of the last request, after close
	fence uint8  // flags that the next request must have
	ce    ceTable
	qpn   uint64 // shifted to its place in the control segment
	typ   uverbs.QPType
	ops   *operations

	// Tables of the fast path: see fastTables.
	words [driver.Opcodes]uint64
	metas [driver.Opcodes]uint32
	flags [8]uint64

	db       mmio.Doorbell
	burst    uint64    // largest burst that the register accepts, in blocks
	burstSGE uint64    // the same, for a request without inline data
	single   uint64    // size of a burst of a request with one SGE
	shared   *register // nil if no other queue uses the register

	tail       *uint32
	segments   []segment // the blocks, as segments
	bytes      []byte    // the blocks, as bytes
	maxPost    uint32
	maxSGE     int
	maxInline  int
	lastInline uint32 // last block, masked, at which a request with inline data of any size does not reach the ring's end
	maxMessage uint64
	request    request
	batch      batch
	owner      provider.QPOwner

	// destSegments is the number of segments that name the destination of every request, after the
	// control segment: with XRC the peer's SRQ, with DC the address and the DCT, with UD the address and the QP.
	destSegments uint32

	frames *frameQueue // raw packet QPs only

	streams bool // the requests of a DCI may name streams

	pd  *driver.PD    // to which AHs must belong, on UD QPs and DCIs
	mtu func() uint64 // queries maxMessage, on UD QPs
}

// use sets ring as the queue's memory. An empty ring has no room for requests.
func (s *sendQueue) use(ring []byte, notes []sendNote, tail *uint32) {
	s.blocks, s.notes, s.segments, s.bytes, s.tail = blocksOf(ring), notes, segmentsOf(ring), ring, tail
	s.mask = uint32(len(s.blocks)) - 1
	if len(ring) == 0 {
		s.mask = 0
	}
}

// configure sets what depends on the QP's type and configuration.
func (s *sendQueue) configure(cfg *uverbs.QPConfig, env provider.QPEnv, z *sizes, mrs *driver.MRs, maxTSO uint64) {
	s.ops, s.typ = &opsRC, cfg.Type
	s.ce = newCETable(cfg.SignalAll)
	s.maxPost, s.maxSGE, s.maxInline, s.maxMessage = uint32(z.maxSend), cfg.MaxSendSGE, z.maxInline, uverbs.MaxMessage
	s.limit = s.maxPost
	s.owner = env.Owner
	switch cfg.Type {
	case uverbs.UC:
		s.ops = &opsUC
	case uverbs.XRCSend:
		s.destSegments = xrcSegments
	case uverbs.DCI:
		s.destSegments, s.pd = datagramSegments, env.PD
		s.streams = cfg.DCIStreams.Concurrent > 0
	case uverbs.RawPacket:
		s.ops, s.frames = &opsRaw, newFrameQueue(env.Owner.Checksums, z.header, mrs)
		s.frames.maxTSOHeader, s.frames.maxTSO = cfg.MaxTSOHeader, maxTSO
	case uverbs.UD:
		s.ops, s.destSegments, s.pd = &opsUD, datagramSegments, env.PD
		s.mtu, s.maxMessage = env.Owner.MTU, 0
	}
	segments := ctrlSegments + s.destSegments + raddrSegments
	if blocks := uint64(segments+perBlock) / perBlock; s.burstSGE >= blocks {
		s.single = blocks
	}
	inline := segments*segmentSize + inlineHeader + uint32(s.maxInline)
	s.lastInline = s.mask + 1 - min(s.mask+1, (inline+blockSize-1)/blockSize)
	s.fastTables()
	s.rareWords()
}

// reset empties the queue.
func (s *sendQueue) reset() {
	s.cur, s.head, s.last, s.fence = 0, 0, 0, 0
	mmio.Release32(s.tail, 0)
	if s.mtu != nil {
		s.maxMessage = 0 // the QP may use another port next
	}
	s.begin()
}

// overflow reports whether there is no room for another request: mlx5_wq_overflow.
func (s *sendQueue) overflow() bool { return s.head-atomic.LoadUint32(s.tail) >= s.maxPost }

// setLimit sets how many requests the fast path can encode: as many as there is room for, or none
// if the next request needs a fence or the last one is still open.
func (s *sendQueue) setLimit() {
	s.limit = s.head
	if s.fence == 0 && s.request.state < requestOpen {
		s.limit = atomic.LoadUint32(s.tail) + s.maxPost
	}
}

func (s *sendQueue) outstanding() int { return int(s.head - atomic.LoadUint32(s.tail)) }

// burstOf returns how many blocks of a single request are written to the register: all of them,
// or 0 if the register does not accept bursts of that size. For a request without data, only the
// first word is written.
func (s *sendQueue) burstOf(blocks uint32, inlined bool) uint64 {
	most := s.burstSGE
	if inlined {
		most = s.burst
	}
	if uint64(blocks) > most || be(s.blocks[s.last&s.mask][0])&wordSize < 2 {
		return 0
	}
	return uint64(blocks)
}

// postSendDB rings the doorbell for all requests before cur: post_send_db.
func (s *sendQueue) postSendDB(burst uint64) {
	wqe := bytesOf(&s.blocks[s.last&s.mask])
	if s.shared != nil {
		s.shared.ring(&s.db, s.cur&0xffff, wqe, burst)
		return
	}
	mmio.Ring(&s.db, s.cur&0xffff, wqe, burst)
}
