package mlx5

import (
	"errors"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// srq implements uverbs.ProviderSRQ.
//
// Its slots form a list, by the number of the next in each. The device follows it
// and is told how many it may take. Posts fill the slot at head and go on to the
// next; the one at tail, which has none yet, is never filled. Slots come back in
// any order, from any CQ: Poll puts them on a stack, without a lock, and a post
// that has come to the tail takes all of it and appends it.
type srq struct {
	segments []segment
	ids      []uint64 // WRIDs
	below    []uint32 // of a slot on the stack: the one below it
	top      atomic.Uint32
	shift    uint32 // log2 of the segments of a slot
	head     uint32
	tail     uint32
	count    uint32 // receives posted
	maxSGE   int

	ctx    *deviceContext
	mem    *provider.Mapping
	record record
	number uint32
	target target

	retired atomic.Bool
}

// noSlot is what lies below the lowest slot of the stack.
const noSlot = ^uint32(0)

// CreateSRQ implements uverbs.ProviderContext.
func (c *deviceContext) CreateSRQ(pd *uverbs.PD, cfg *uverbs.SRQConfig, create uverbs.ProviderCommand) (uverbs.ProviderSRQ, uverbs.ProviderReply, error) {
	var reply uverbs.ProviderReply
	slots, shift, err := c.limits.srqSizes(cfg)
	if err != nil {
		return nil, reply, err
	}
	if cfg.Limit != 0 { // the kernel would forget it
		return nil, reply, &uverbs.Error{Op: "create SRQ", Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the device takes no Limit when an SRQ is made: post receives, then set it by SRQ.Modify"}
	}
	s := &srq{ctx: c, shift: uint32(shift) - segmentShift, maxSGE: 1<<shift/segmentSize - 1}
	if err = s.prepare(pd, slots); err == nil {
		reply, err = s.create(cfg.XRCD != nil, create)
	}
	if err != nil {
		return nil, reply, errors.Join(err, s.Retire())
	}
	reply.SRQ.MaxWR, reply.SRQ.MaxSGE = slots-1, s.maxSGE
	return s, reply, nil
}

func (s *srq) prepare(pd *uverbs.PD, slots int) (err error) {
	const op = "create SRQ"
	ring := slots << s.shift * segmentSize
	if s.mem, err = queueMemory(op, pd, pages(ring+slots*8), s.ctx.set.srqPages); err != nil {
		return err
	}
	if s.record, err = s.ctx.records.get(); err != nil {
		return kernelError(op, "", err, "there is no memory for its doorbell record")
	}
	b := s.mem.Bytes()
	s.segments, s.ids = segmentsOf(b[:ring]), uint64sOf(b[ring:][:slots*8])
	s.below = make([]uint32, slots)
	s.top.Store(noSlot)
	s.tail = uint32(slots) - 1
	for i := range s.tail {
		s.link(i, i+1)
	}
	return nil
}

func (s *srq) create(xrc bool, create uverbs.ProviderCommand) (uverbs.ProviderReply, error) {
	s.target.key = noNumber
	req := &uapi.Mlx5IbCreateSrq{BufAddr: addressOf(s.mem.Bytes()), DbAddr: s.record.addr}
	if xrc {
		s.target.srq = s
		req.Uidx = noNumber - 1 // none
		if s.ctx.indexed {
			req.Uidx = s.ctx.targets.add(&s.target)
		}
		if req.Uidx == noNumber {
			return uverbs.ProviderReply{}, errAllTargets
		}
	}
	resp := new(uapi.Mlx5IbCreateSrqResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	if err != nil {
		return reply, err
	}
	s.number = resp.Srqn
	if !s.ctx.indexed {
		s.target.srq = s
		s.ctx.srqs.put(s.number, &s.target)
	}
	return reply, nil
}

// slot is the list of slot i, behind the segment that names the next.
func (s *srq) slot(i uint32) []segment { return s.segments[i<<s.shift:][:1<<s.shift] }

// link makes next the slot after i.
func (s *srq) link(i, next uint32) {
	s.segments[i<<s.shift][0] = be(uint64(next&0xffff) << 32)
}

// give puts a slot back whose receive is over. Any goroutine may.
func (s *srq) give(i uint32) {
	if int(i) >= len(s.below) {
		return // none of ours
	}
	for {
		top := s.top.Load()
		s.below[i] = top
		if s.top.CompareAndSwap(top, i) {
			return
		}
	}
}

// reclaim appends the slots that have come back to the list, and reports whether
// there were any.
func (s *srq) reclaim() bool {
	i := s.top.Swap(noSlot)
	for n := 0; i != noSlot && n < len(s.below); n++ {
		next := s.below[i]
		s.link(s.tail, i)
		s.tail = i
		i = next
	}
	return s.head != s.tail
}

// PostRecv implements uverbs.ProviderSRQ.
func (s *srq) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	n, err := s.post(wrs)
	runtime.KeepAlive(s)
	return n, err
}

func (s *srq) post(wrs []uverbs.RecvWR) (int, error) {
	var err error
	n := 0
	for ; n < len(wrs); n++ {
		if s.head == s.tail && !s.reclaim() {
			err = uverbs.ErrQueueFull
			break
		}
		slot := s.slot(s.head)
		if sgl := wrs[n].SGL; !fill(slot[1:1+s.maxSGE], sgl) {
			err = badReceive(sgl, s.maxSGE)
			break
		}
		s.ids[s.head] = wrs[n].WRID
		s.head = uint32(be(slot[0][0])>>32) & uint32(len(s.ids)-1)
		s.count++
	}
	if n > 0 {
		mmio.Publish32BE(&s.record.words[recvCounter], s.count&0xffff)
	}
	return n, err
}

// Modify implements uverbs.ProviderSRQ.
func (s *srq) Modify(_ *uverbs.SRQAttr, m uverbs.SRQMask, modify uverbs.ProviderCommand) error {
	if m&uverbs.SRQMaskMaxWR != 0 {
		return &uverbs.Error{Op: "modify", Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the device does not resize shared receive queues: make another one"}
	}
	_, err := modify(nil, nil)
	return err
}

// Retire implements uverbs.ProviderSRQ.
func (s *srq) Retire() error {
	if s.retired.Swap(true) {
		return nil
	}
	switch {
	case s.target.srq == nil || s.target.key == noNumber:
	case s.ctx.indexed:
		s.ctx.targets.remove(&s.target, true)
	default:
		s.ctx.srqs.remove(&s.target, false)
	}
	err := s.ctx.records.put(s.record)
	if s.mem != nil {
		err = errors.Join(err, s.mem.Retire())
	}
	return err
}
