package mlx5

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A frameQueue is the part of a send queue that only raw packet QPs have.
type frameQueue struct {
	header    int           // bytes that the device requires in the request: 0 or l2Header
	headed    int           // bytes of the header that the last request has
	memory    driver.MRUser // for headers in memory that the SGEs name
	segments  uint32        // size of the Ethernet segment
	sums      func() bool
	canSum    bool // the result of sums, if sumsKnown is set
	sumsKnown bool

	maxTSOHeader int    // QPConfig.MaxTSOHeader
	maxTSO       uint64 // bytes of data that a TSO may have
}

// Fields of the Ethernet segment: the checksums that the device computes, how much of the frame
// is in the segment, and these bytes.
const (
	l2Header     = 18 // an Ethernet header with a VLAN tag
	sumsShift    = 24 // in the first word
	allSums      = 0xc0
	headerShift  = 16 // of the header's length, in the second word
	headerStart  = 14 // offset of the header, in bytes
	ethSegments  = 2  // with a header
	minTSOHeader = 14
	overheadRaw  = segmentSize * (ctrlSegments + ethSegments)
	inlineAsNone = 1 // MLX5_USER_INLINE_MODE_NONE
)

// headerOf returns how many bytes of a frame must be inline in its request. If the kernel does
// not report the inline mode, the header is assumed to be required.
func headerOf(inlineMode uint8) int {
	if inlineMode == inlineAsNone {
		return 0
	}
	return l2Header
}

func newFrameQueue(sums func() bool, header int, mrs *driver.MRs) *frameQueue {
	q := &frameQueue{header: header, segments: uint32(headerStart+2+header) / segmentSize, sums: sums}
	q.memory.Open(mrs)
	return q
}

// takes reports whether a frame can be sent with these flags.
func (q *frameQueue) takes(f uverbs.SendFlags) bool {
	if q == nil || f&^(callerFlags|driver.SendIPCsum) != 0 {
		return false
	}
	if !q.sumsKnown {
		q.canSum, q.sumsKnown = q.sums(), true
	}
	return q.canSum
}

// tsoLimit returns how many bytes of data a TSO of the QP may have.
func (c *deviceContext) tsoLimit(cfg *uverbs.QPConfig) (uint64, error) {
	if cfg.MaxTSOHeader == 0 {
		return 0, nil
	}
	r, err := c.queryDriver()
	if err == nil && r.TsoCaps.SupportedQpts>>cfg.Type&1 == 0 {
		err = notSupported("create QP", "the device does not divide TCP streams into frames: see TSO of ether.QueryDevice")
	}
	if err != nil {
		return 0, err
	}
	return uint64(r.TsoCaps.MaxTso), nil
}

// setEthSeg writes the Ethernet segment: set_eth_seg. If the device requires the beginning of the
// frame there, or the request is a TSO, this is copied later.
func (s *sendQueue) setEthSeg(f uverbs.SendFlags, mss uint32) {
	r := &s.request
	sums := uint64(0)
	if f&driver.SendIPCsum != 0 {
		sums = allSums << sumsShift
	}
	if r.op.hw() == hwTSO {
		*s.segment(s.cur, r.size) = segment{be(sums | uint64(mss&0xffff)), 0}
		if r.wants = uverbs.ErrTSO; mss == 0 {
			s.fail(r.wants)
		}
		return
	}
	*s.segment(s.cur, r.size) = segment{be(sums), be(uint64(s.frames.header) << headerShift)}
	if s.frames.header > 0 {
		*s.segment(s.cur, r.size+1) = segment{}
		r.wants = uverbs.ErrFrameHeader
	}
	s.frames.headed = 0
	r.size += s.frames.segments
}

// setTSOHeader copies the headers of a TSO into the Ethernet segment: set_tso_eth_seg. They may wrap around the end of
// the ring.
func (s *sendQueue) setTSOHeader(headers []byte) {
	r, n := &s.request, len(headers)
	if n < minTSOHeader || n > s.frames.maxTSOHeader {
		s.fail(uverbs.ErrTSO)
		return
	}
	size := uint32(headerStart+n+segmentSize-1) / segmentSize
	*s.segment(s.cur, r.size+size-1) = segment{}
	s.segment(s.cur, r.size)[1] = be(uint64(n) << headerShift)
	s.copyIn(s.cur*blockSize+r.size*segmentSize+headerStart, headers)
	r.size += size
	r.inlined, r.wants = true, nil
}

// headerBytes returns where the frame's header is in the request. The header does not extend
// beyond the first block.
func (s *sendQueue) headerBytes() []byte {
	at := int(s.cur&s.mask)*blockSize + segmentSize*ctrlSegments + headerStart
	return s.bytes[at:][:s.frames.header]
}

// headerFrom copies the missing part of a frame's header from a buffer, and returns the rest of
// the buffer.
func (s *sendQueue) headerFrom(g uverbs.SGE) uverbs.SGE {
	f := s.frames
	to := s.headerBytes()[f.headed:]
	to = to[:min(len(to), int(g.Length))]
	f.memory.Begin()
	ok := f.memory.Load(g.LKey, g.Addr, to)
	f.memory.End()
	if !ok {
		s.fail(uverbs.ErrFrameHeader)
		return g
	}
	if f.headed += len(to); f.headed == f.header {
		s.request.wants = nil
	}
	g.Addr += uint64(len(to))
	g.Length -= uint32(len(to))
	return g
}

// inlineFrame copies inline data, which is the beginning of a frame or all of it. The header goes
// to the Ethernet segment if the device requires it there, and the rest to an inline data
// segment.
func (s *sendQueue) inlineFrame(data []byte) {
	r, n, header := &s.request, len(data), s.frames.header
	switch {
	case r.inlined || r.sges > 0:
		s.fail(uverbs.ErrMalformed)
		return
	case r.op.hw() == hwTSO:
		s.setTSOHeader(data)
		return
	case n > s.maxInline:
		s.fail(uverbs.ErrInlineTooLong)
		return
	case n < header:
		s.fail(uverbs.ErrFrameHeader)
		return
	case n == 0:
		return
	}
	copy(s.headerBytes(), data)
	if rest := data[header:]; len(rest) > 0 {
		r.size += s.setDataInlSeg(s.cur, r.size, rest)
	}
	r.inlined, r.wants, r.total = true, nil, uint64(n)
}

// arrivedFrames are the receives of a raw Ethernet queue. They are not in target.recvs, so that
// the fast path of Poll leaves their completions to pollAny.
type arrivedFrames struct {
	ids    []uint64
	mask   uint32
	tail   *uint32
	number uint32 // of the QP or the WQ
}

func (r *recvQueue) arrivals() *arrivedFrames {
	return &arrivedFrames{ids: r.ids, mask: r.mask, tail: r.tail}
}

// complete ends a receive and returns its WRID.
func (f *arrivedFrames) complete(at uint32) (id uint64, ok bool) {
	if at &= f.mask; int(at) >= len(f.ids) {
		return 0, false
	}
	mmio.Release32(f.tail, atomic.LoadUint32(f.tail)+1)
	return f.ids[at], true
}

// Fields of the fourth word of a frame's CQE.
const (
	cqeL3OK, cqeL4OK = 1 << 25, 1 << 26
	cqeIPv4          = 2 << 18
	cqeL3Type        = 3 << 18
	cqeTagged        = 1 << 16
)

// takeFrame turns the entry e, whose last word is v, into the completion of a raw Ethernet
// receive.
func (q *cq) takeFrame(f *arrivedFrames, e *block, v uint64, wc *uverbs.WC) (bool, error) {
	id, ok := f.complete(uint32(v>>16) & 0xffff)
	if !ok {
		return false, errStray
	}
	wc.WRID, wc.Opcode, wc.QPNum = id, uverbs.WCRecv, f.number
	wc.ByteLen = uint32(be(e[5]))
	wc.Imm = uint32(v>>32) & indexMask // the flow tag
	w := uint32(be(e[3]))
	if w&(cqeL3OK|cqeL4OK|cqeL3Type) == cqeL3OK|cqeL4OK|cqeIPv4 {
		wc.Flags |= driver.WCIPCsumOK
	}
	if w&cqeTagged != 0 {
		wc.Flags |= driver.WCWithCVLAN
		wc.SLID = uint16(w)
	}
	return true, nil
}

// Entered implements driver.Stateful. The receive queue of a raw packet QP accepts frames
// from INIT on, but the QP must not. So the receive counter is withheld from the device until the
// QP enters RTR or ERR.
func (q *qp) Entered(state uint8) {
	if q.target.frames == nil {
		return
	}
	switch uverbs.QPState(state) {
	case uverbs.StateReset:
		q.rq.counter = &q.withheld
	case uverbs.StateRTR, uverbs.StateErr:
		q.rq.counter = &q.record.words[recvCounter]
		mmio.Publish32BE(q.rq.counter, q.rq.head&0xffff)
	}
	runtime.KeepAlive(q)
}

// errUnindexed is returned when a raw Ethernet queue is created on a device whose CQEs name the
// queue by number: CQEs of frames have a flow tag in that place.
var errUnindexed = notSupported("create queue", "raw packets need a device with completions of version 1")
