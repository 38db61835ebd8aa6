package mlx5

import (
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// cq implements driver.CQ.
type cq struct {
	ring   []block
	first  *block  // first CQE
	stride uintptr // bytes from one CQE to the next
	perLap uint64  // 2^32 / entries: an index times this, shifted right by 32 bits, is its lap
	mask   uint32  // number of entries minus 1
	log    uint32  // log2 of the entries
	wide   uint32  // 1 if an entry has two blocks, the second of which is the CQE
	ci     uint32  // consumer index
	key    uint32  // key of last: see rawIndex
	last   *target
	simple bool // CQEs name their target by index, which is the common case

	memory  driver.MRUser // for messages carried in CQEs
	storing bool          // memory.Begin was called

	ctx   *deviceContext
	rings driver.Memory // of the parent domain, or nil
	backing
	number  uint32
	size    int                   // bytes of an entry
	lost    error                 // set when the queue cannot go on
	failure atomic.Pointer[error] // set by Fail
	retired atomic.Bool
	halted  atomic.Bool // set with lost, failure or retired, so that Poll checks only this
}

// CreateCQ implements driver.Context.
func (c *deviceContext) CreateCQ(cfg *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	const op = "create CQ"
	var reply driver.Reply
	entries, err := cqEntries(op, cfg.Entries)
	if err != nil {
		return nil, reply, err
	}
	q := &cq{ctx: c, rings: cfg.Memory, size: c.set.cqeSize, simple: c.indexed, key: noIndex}
	if err = q.alloc(c, op, q.rings, pages(entries*q.size), c.set.cqPages); err == nil {
		q.use(q.mem, entries)
		q.vacate(0)
		q.memory.Open(c.memory)
		reply, err = q.create(create)
	}
	if err != nil {
		return nil, reply, provider.Join(err, q.Retire(false))
	}
	reply.Entries = entries - 1
	return q, reply, nil
}

// create creates the kernel's CQ. The request has 16 bits for the number of the register page
// that arms the CQ. A larger number, which occurs on devices with a BAR beyond 256 MiB, is passed
// in an attribute of the driver.
func (q *cq) create(create driver.CQCommand) (driver.Reply, error) {
	req := &uapi.Mlx5IbCreateCq{BufAddr: addressOf(q.mem.Bytes()), DbAddr: q.record.addr, CqeSize: uint32(q.size)}
	var attrs []driver.Attr
	switch page := q.ctx.uars.base.id; {
	case !q.ctx.dynamic:
	case page > math.MaxUint16:
		attrs = []driver.Attr{{ID: uapi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, Value: page}}
	default:
		req.Flags, req.UarPageIndex = uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, uint16(page)
	}
	resp := new(uapi.Mlx5IbCreateCqResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp), attrs...)
	q.number = resp.Cqn
	return reply, pinned(err, q.mem)
}

// use sets mem as the ring.
func (q *cq) use(mem *provider.Mapping, entries int) {
	q.mem = mem
	q.wide = uint32(q.size/blockSize - 1)
	q.ring = blocksOf(mem.Bytes()[:entries*q.size])
	q.first, q.stride, q.perLap = &q.ring[q.wide], uintptr(q.size), 1<<32/uint64(entries)
	q.mask, q.log = uint32(entries)-1, uint32(bits.TrailingZeros(uint(entries)))
}

// at returns the CQE of entry i.
func (q *cq) at(i uint32) *block { return &q.ring[(i&q.mask)<<q.wide|q.wide] }

// Fields of the last word of a CQE.
const (
	ownerBit     = 1
	formatMask   = 3 << 2 // which message data the entry carries
	opcodeShift  = 4
	opcodeMask   = 0xf0
	invalidEntry = 0xf0
)

// owner returns the owner bit that entry i has once the device has written it.
func (q *cq) owner(i uint32) uint64 { return uint64(i>>(q.log&31)) & ownerBit }

// vacate marks all entries from index i on as not yet written. It gives them the owner bit of the
// previous lap, so that readers need to check only that bit.
func (q *cq) vacate(i uint32) {
	for n := range q.mask + 1 {
		q.at(i + n)[7] = be(invalidEntry | q.owner(i+n) ^ ownerBit)
	}
}

// mine returns the last word of entry i, if the device has written it.
func (q *cq) mine(i uint32) (v uint64, ok bool) {
	v = be(mmio.Acquire64(&q.at(i)[7]))
	return v, (v^q.owner(i))&ownerBit == 0
}

// Ready implements driver.CQ. It also returns true if Poll has an error to return.
func (q *cq) Ready() bool {
	v := be(atomic.LoadUint64(&q.at(q.ci)[7])) // Poll acquires the entry
	ready := (v^q.owner(q.ci))&ownerBit == 0
	ready = (ready || q.lost != nil || q.failure.Load() != nil) && !q.retired.Load()
	runtime.KeepAlive(q)
	return ready
}

// Fail implements driver.CQ.
func (q *cq) Fail(err error) {
	q.failure.Store(&err)
	q.halted.Store(true)
}

// Fields of the doorbell that arms the CQ.
const (
	armSolicited = 1 << 24
	armShift     = 28 // of the event counter
	indexMask    = 0xffffff
)

// Arm implements driver.CQ. If an entry is already waiting, the event is raised at once.
// The caller must poll once more nevertheless, because the device learns from the record how far
// the queue has been polled.
func (q *cq) Arm(solicitedOnly bool, events uint32) error {
	if q.retired.Load() {
		return uverbs.ErrClosed
	}
	w := events&3<<armShift | q.ci&indexMask
	if solicitedOnly {
		w |= armSolicited
	}
	mmio.Publish32BE(&q.record.words[armed], w)
	mmio.WCStart()
	mmio.Store64BE(q.ctx.uars.arm, uint64(w)<<32|uint64(q.number))
	mmio.FlushWrites()
	q.ctx.uars.reportArm(uint64(w)<<32 | uint64(q.number))
	runtime.KeepAlive(q)
	return nil
}

// Retire implements driver.CQ.
func (q *cq) Retire(inUse bool) error {
	if q.retired.Swap(true) {
		return nil
	}
	q.halted.Store(true)
	q.memory.Leave()
	return q.free(q.ctx, inUse)
}
