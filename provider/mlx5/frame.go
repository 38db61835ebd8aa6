package mlx5

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A frameQueue is what the send queue of a raw packet QP has beside the others.
type frameQueue struct {
	header   int                   // bytes that the device wants in the request, 0 or l2Header
	headed   int                   // of them, that the last request has
	memory   uverbs.ProviderMRUser // for headers that the caller has there
	segments uint32                // of the Ethernet segment
	sums     func() bool
	canSum   bool // what sums has answered, once it was asked
	asked    bool
}

// The Ethernet segment: which checksums the device makes, how much of the frame
// is in the segment, and that.
const (
	l2Header     = 18 // of Ethernet, with a VLAN
	sumsShift    = 24 // in the first word
	allSums      = 0xc0
	headerShift  = 16 // of its length, in the second word
	headerStart  = 14 // in bytes
	ethSegments  = 2  // with a header
	overheadRaw  = segmentSize * (ctrlSegments + ethSegments)
	inlineAsNone = 1 // MLX5_USER_INLINE_MODE_NONE
)

// headerOf is how much of a frame must be in its request. A kernel that does not
// tell is taken for one whose device wants it.
func headerOf(inlineMode uint8) int {
	if inlineMode == inlineAsNone {
		return 0
	}
	return l2Header
}

func newFrameQueue(u *uverbs.QP, header int, mrs *uverbs.ProviderMRs) *frameQueue {
	q := &frameQueue{header: header, segments: uint32(headerStart+2+header) / segmentSize,
		sums: func() bool { return uverbs.ProviderChecksums(u) }}
	q.memory.Open(mrs)
	return q
}

// takes tells whether a frame can be sent with these flags.
func (q *frameQueue) takes(f uverbs.SendFlags) bool {
	if q == nil || f&^(callerFlags|uverbs.IPCsum) != 0 {
		return false
	}
	if !q.asked {
		q.canSum, q.asked = q.sums(), true
	}
	return q.canSum
}

// frame writes the Ethernet segment of the last operation.
func (s *sendQueue) frame(f uverbs.SendFlags) {
	b := &s.batch
	sums := uint64(0)
	if f&uverbs.IPCsum != 0 {
		sums = allSums << sumsShift
	}
	*s.segment(b.cur, b.size) = segment{be(sums), be(uint64(s.frames.header) << headerShift)}
	if s.frames.header > 0 {
		*s.segment(b.cur, b.size+1) = segment{}
		b.owed = uverbs.ErrFrameHeader
	}
	s.frames.headed = 0
	b.size += s.frames.segments
}

// headerBytes is where the header of the last operation is. It does not reach
// beyond the first block.
func (s *sendQueue) headerBytes() []byte {
	at := int(s.batch.cur&s.mask)*blockSize + segmentSize*ctrlSegments + headerStart
	return s.bytes[at:][:s.frames.header]
}

// headerFrom takes what is missing of a frame's header from a buffer, and returns the
// rest of that.
func (s *sendQueue) headerFrom(g uverbs.SGE) uverbs.SGE {
	f := s.frames
	to := s.headerBytes()[f.headed:]
	to = to[:min(len(to), int(g.Length))]
	f.memory.Begin()
	ok := f.memory.Load(g.LKey, g.Addr, to)
	f.memory.End()
	if !ok {
		s.batch.err = uverbs.ErrFrameHeader
		return g
	}
	if f.headed += len(to); f.headed == f.header {
		s.batch.owed = nil
	}
	g.Addr += uint64(len(to))
	g.Length -= uint32(len(to))
	return g
}

// inlineFrame copies the beginning of a frame, or all of it: into the Ethernet
// segment what the device wants there, and the rest into one of inline data.
func (s *sendQueue) inlineFrame(data []byte) {
	b := s.settle()
	n, header := len(data), s.frames.header
	switch {
	case !b.open || b.data || b.sges > 0:
		b.err = uverbs.ErrOpcode
		return
	case n > s.maxInline:
		b.err = uverbs.ErrInlineTooLong
		return
	case n < header:
		b.err = uverbs.ErrFrameHeader
		return
	case n == 0:
		return
	}
	copy(s.headerBytes(), data)
	if rest := data[header:]; len(rest) > 0 {
		s.copyInline(b.cur, b.size, rest)
		b.size += uint32(inlineHeader+len(rest)+segmentSize-1) / segmentSize
	}
	b.owed = nil
	b.data, b.inlined, b.total = true, true, uint64(n)
}

// arrivedFrames are the receives of a queue of raw Ethernet. They are not where
// those of other queues are, so that the common way through Poll leaves their
// completions to the other.
type arrivedFrames struct {
	ids    []uint64
	mask   uint32
	tail   *uint32
	number uint32 // of the QP or the WQ
}

func (r *recvQueue) arrivals() *arrivedFrames {
	return &arrivedFrames{ids: r.ids, mask: r.mask, tail: r.tail}
}

// over is the WRID of a receive, which is over.
func (f *arrivedFrames) over(at uint32) (id uint64, ok bool) {
	if at &= f.mask; int(at) >= len(f.ids) {
		return 0, false
	}
	mmio.Release32(f.tail, atomic.LoadUint32(f.tail)+1)
	return f.ids[at], true
}

// Of the fourth word of a CQE of a frame.
const (
	cqeL3OK, cqeL4OK = 1 << 25, 1 << 26
	cqeIPv4          = 2 << 18
	cqeL3Type        = 3 << 18
	cqeTagged        = 1 << 16
)

// takeFrame turns the entry e, with the last word v, into the completion of a
// receive of raw Ethernet.
func (q *cq) takeFrame(f *arrivedFrames, e *block, v uint64, wc *uverbs.WC) (bool, error) {
	id, ok := f.over(uint32(v>>16) & 0xffff)
	if !ok {
		return false, errStray
	}
	wc.WRID, wc.Opcode, wc.QPNum = id, uverbs.WCRecv, f.number
	wc.ByteLen = uint32(be(e[5]))
	wc.Imm = uint32(v>>32) & indexMask // the flow's tag
	w := uint32(be(e[3]))
	if w&(cqeL3OK|cqeL4OK|cqeL3Type) == cqeL3OK|cqeL4OK|cqeIPv4 {
		wc.Flags |= uverbs.WCIPCsumOK
	}
	if w&cqeTagged != 0 {
		wc.Flags |= uverbs.WCWithCVLAN
		wc.SLID = uint16(w)
	}
	return true, nil
}

// Entered implements uverbs.ProviderStateful. The receive queue under a raw packet
// QP takes frames from INIT on, which the QP must not: it is told of what was
// posted in RTR.
func (q *qp) Entered(state uverbs.QPState) {
	if q.target.frames == nil {
		return
	}
	switch state {
	case uverbs.StateReset:
		q.rq.counter = &q.withheld
	case uverbs.StateRTR, uverbs.StateErr:
		q.rq.counter = &q.record.words[recvCounter]
		mmio.Publish32BE(q.rq.counter, q.rq.head&0xffff)
	}
	runtime.KeepAlive(q)
}

// errUnindexed is the error of a create of raw Ethernet where completions name
// the queue by its number: those of frames have a flow's tag in its place.
var errUnindexed error = &uverbs.Error{Op: "create queue", Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
	Detail: "raw packets need a device with completions of version 1"}
