package mlx5

import (
	"errors"
	"math/bits"
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// cq implements uverbs.ProviderCQ.
type cq struct {
	ring   []block
	first  *block  // CQE
	stride uintptr // bytes from one to the next
	perLap uint64  // 2^32 over the entries: what an index is multiplied by to get its lap
	mask   uint32  // entries, less one
	log    uint32  // log2 of the entries
	wide   uint32  // 1 when an entry is two blocks, of which the second is the CQE
	ci     uint32  // entries taken
	key    uint32  // of last: see rawIndex
	last   *target
	simple bool // CQEs name their target by index: those of every common kind

	memory  uverbs.ProviderMRUser // for messages that come in entries
	storing bool                  // it has begun

	ctx     *deviceContext
	pd      *uverbs.PD // whose memory the ring lies in, or nil
	mem     *provider.Mapping
	record  record
	number  uint32
	size    int         // bytes of an entry
	lost    error       // the queue cannot go on
	gone    atomic.Bool // and so is the device
	retired atomic.Bool
	halted  atomic.Bool // one of these three: Poll looks at this alone
}

// CreateCQ implements uverbs.ProviderContext.
func (c *deviceContext) CreateCQ(cfg *uverbs.CQConfig, create uverbs.ProviderCommand) (uverbs.ProviderCQ, uverbs.ProviderReply, error) {
	const op = "create CQ"
	var reply uverbs.ProviderReply
	entries, err := cqEntries(op, cfg.Entries)
	if err != nil {
		return nil, reply, err
	}
	q := &cq{ctx: c, pd: cfg.PD, size: c.set.cqeSize, simple: c.indexed, key: noIndex}
	mem, err := queueMemory(op, q.pd, pages(entries*q.size), c.set.cqPages)
	if err != nil {
		return nil, reply, err
	}
	q.use(mem, entries)
	q.vacate(0)
	q.memory.Open(c.memory)
	if q.record, err = c.records.get(); err != nil {
		err = kernelError(op, "", err, "there is no memory for its doorbell record")
	} else {
		reply, err = q.create(create)
	}
	if err != nil {
		return nil, reply, errors.Join(err, q.Retire())
	}
	reply.Entries = entries - 1
	return q, reply, nil
}

func (q *cq) create(create uverbs.ProviderCommand) (uverbs.ProviderReply, error) {
	u := &q.ctx.uars
	req := &uapi.Mlx5IbCreateCq{BufAddr: addressOf(q.mem.Bytes()), DbAddr: q.record.addr, CqeSize: uint32(q.size)}
	if q.ctx.dynamic {
		if u.base.id > 0xffff {
			return uverbs.ProviderReply{}, badABI("register page %d, of which CREATE_CQ cannot be told", u.base.id)
		}
		req.Flags, req.UarPageIndex = uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, uint16(u.base.id)
	}
	resp := new(uapi.Mlx5IbCreateCqResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	q.number = resp.Cqn
	return reply, err
}

// use makes mem the ring.
func (q *cq) use(mem *provider.Mapping, entries int) {
	q.mem = mem
	q.wide = uint32(q.size/blockSize - 1)
	q.ring = blocksOf(mem.Bytes()[:entries*q.size])
	q.first, q.stride, q.perLap = &q.ring[q.wide], uintptr(q.size), 1<<32/uint64(entries)
	q.mask, q.log = uint32(entries)-1, uint32(bits.TrailingZeros(uint(entries)))
}

// at is the CQE of entry i.
func (q *cq) at(i uint32) *block { return &q.ring[(i&q.mask)<<q.wide|q.wide] }

// Of the last word of a CQE.
const (
	ownerBit     = 1
	formatMask   = 3 << 2 // what is in the entry beside the CQE
	opcodeShift  = 4
	opcodeMask   = 0xf0
	invalidEntry = 0xf0
)

// owner is the owner bit of an entry that the device has written at index i.
func (q *cq) owner(i uint32) uint64 { return uint64(i>>(q.log&31)) & ownerBit }

// vacate makes all entries from index i on such that they are not yet written.
// With the owner bit of the lap before, nothing else needs a look.
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

// Ready implements uverbs.ProviderCQ. It is true also when Poll has an error to
// tell.
func (q *cq) Ready() bool {
	_, ready := q.mine(q.ci)
	ready = (ready || q.lost != nil || q.gone.Load()) && !q.retired.Load()
	runtime.KeepAlive(q)
	return ready
}

// Lose implements uverbs.ProviderLoser.
func (q *cq) Lose() {
	q.gone.Store(true)
	q.halted.Store(true)
}

// Of the doorbell that arms.
const (
	armSolicited = 1 << 24
	armShift     = 28 // of the number of the next event
	indexMask    = 0xffffff
)

// Arm implements uverbs.ProviderCQ. An entry that came before is told of at once,
// but poll once more all the same: the device knows how far the queue has been
// polled from the record.
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
	runtime.KeepAlive(q)
	return nil
}

// Retire implements uverbs.ProviderCQ.
func (q *cq) Retire() error {
	if q.retired.Swap(true) {
		return nil
	}
	q.halted.Store(true)
	q.memory.Leave()
	return errors.Join(q.ctx.records.put(q.record), q.mem.Retire())
}
