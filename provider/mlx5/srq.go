package mlx5

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// srq implements driver.SRQ.
//
// Its slots form a linked list: each slot holds the number of the next one. The device follows
// the list, and the doorbell record says how many receives it may use. A post fills the slot at
// head and moves head to the next one. The slot at tail has no successor yet and is never filled.
// Slots are returned in any order and from any CQ: Poll sets their bits in free without a lock.
// When a post has reached the tail, it appends a run of adjacent free slots in ascending order,
// because the device prefetches adjacent receives.
type srq struct {
	segments []segment
	ids      []uint64        // WRIDs
	free     []atomic.Uint64 // bit map of the slots that are neither in the list nor used by the device
	shift    uint32          // log2 of the segments of a slot
	head     uint32
	tail     uint32
	slots    uint32 // slots that posts use: the first ones, or all after the first page fault
	count    uint32 // receives posted
	maxSGE   int

	faults  sync.Mutex // serializes posts and page faults, if the context has pageable memory
	resting restQueue

	ctx *deviceContext
	backing
	number uint32
	target target

	dropped func(wrID uint64) // of OnDrop, or nil
	retired atomic.Bool
}

// CreateSRQ implements driver.Context.
func (c *deviceContext) CreateSRQ(cfg *driver.SRQConfig, create driver.Command) (provider.SRQ, driver.Reply, error) {
	var reply driver.Reply
	size, err := c.limits.srqSizes(cfg)
	if err != nil {
		return nil, reply, err
	}
	if cfg.Limit != 0 { // the kernel would ignore it
		return nil, reply, notSupported("create SRQ",
			"the device accepts no Limit when an SRQ is created: post receives, then set it by SRQ.Modify")
	}
	s := &srq{ctx: c, shift: uint32(size.shift) - segmentShift, maxSGE: 1<<size.shift/segmentSize - 1}
	if err = s.prepare(cfg.Memory, size); err == nil {
		asked := cfg.MaxWR
		cfg.MaxWR = size.total - 1 // the kernel adds the slot that is never filled
		reply, err = s.create(cfg.XRC, create)
		cfg.MaxWR = asked
	}
	if err != nil {
		return nil, reply, provider.Join(err, s.Retire())
	}
	reply.SRQ.MaxWR, reply.SRQ.MaxSGE = size.slots-1, s.maxSGE
	return c.watchSRQ(s), reply, nil
}

func (s *srq) prepare(rings driver.Memory, size srqSize) (err error) {
	ring := size.total << size.shift
	if err = s.alloc(s.ctx, "create SRQ", rings, pages(ring+size.total*8), s.ctx.set.srqPages); err != nil {
		return err
	}
	b := s.mem.Bytes()
	s.segments, s.ids = segmentsOf(b[:ring]), uint64sOf(b[ring:][:size.total*8])
	s.free = make([]atomic.Uint64, (size.total+63)/64)
	s.slots = uint32(size.slots)
	s.tail = s.slots - 1
	s.linkAll(0, s.tail)
	if size.total > size.slots {
		s.resting = restQueue{head: s.slots, tail: uint32(size.total) - 1, any: true}
		s.linkAll(s.resting.head, s.resting.tail)
	}
	return nil
}

func (s *srq) create(xrc bool, create driver.Command) (driver.Reply, error) {
	s.target.key = noNumber
	req := &uapi.Mlx5IbCreateSrq{BufAddr: addressOf(s.mem.Bytes()), DbAddr: s.record.addr}
	if xrc {
		s.target.srq = s
		req.Uidx = noNumber - 1 // none
		if s.ctx.indexed {
			req.Uidx = s.ctx.targets.add(&s.target)
		}
		if req.Uidx == noNumber {
			return driver.Reply{}, errAllTargets
		}
	}
	resp := new(uapi.Mlx5IbCreateSrqResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	if err != nil {
		return reply, pinned(err, s.mem)
	}
	s.number = resp.Srqn
	if !s.ctx.indexed {
		s.target.srq = s
		s.ctx.srqs.put(s.number, &s.target)
	}
	return reply, nil
}

// slot returns the segments of slot i: the segment that names the next slot, then the data
// segments.
func (s *srq) slot(i uint32) []segment { return s.segments[i<<s.shift:][:1<<s.shift] }

// next returns the slot after i.
func (s *srq) next(i uint32) uint32 {
	return uint32(be(s.segments[i<<s.shift][0])>>32) & uint32(len(s.ids)-1)
}

// link makes next the slot after i.
func (s *srq) link(i, next uint32) {
	s.segments[i<<s.shift][0] = be(uint64(next&0xffff) << 32)
}

// linkAll links the slots from first to last to each other.
func (s *srq) linkAll(first, last uint32) {
	for i := first; i < last; i++ {
		s.link(i, i+1)
	}
}

// append adds the slots from first to last to the end of the list.
func (s *srq) append(first, last uint32) {
	s.link(s.tail, first)
	s.linkAll(first, last)
	s.tail = last
}

// release frees the slot of a completed receive. Any goroutine may call it.
func (s *srq) release(i uint32) {
	if int(i) < len(s.ids) {
		s.free[i/64].Or(1 << (i % 64))
	}
}

// OnDrop implements driver.Dropper.
func (s *srq) OnDrop(f func(wrID uint64)) { s.dropped = f }

// drop frees the slot of a receive whose completion is dropped.
func (s *srq) drop(i uint32) {
	if int(i) >= len(s.ids) {
		return
	}
	id := s.ids[i]
	s.release(i) // first: the receive may be posted again at once
	if s.dropped != nil {
		s.dropped(id)
	}
}

// reclaim appends a run of free slots to the list after tail: the first run above tail, or else
// the first run of all. This is the order of libmlx5. A run ends at its word of the bit map, but
// the next call continues in the next word, which is above the new tail. reclaim reports whether
// there was a run.
func (s *srq) reclaim() bool {
	i, words := s.tail+1, (s.slots+63)/64
	k := i / 64
	if k >= words {
		i, k = 0, 0
	}
	w := s.free[k].Load() &^ (1<<(i%64) - 1)
	for left := words; w == 0; left-- {
		if left == 0 {
			return false
		}
		if k++; k == words {
			k = 0
		}
		w = s.free[k].Load()
	}
	low := w & -w
	run := w &^ (w + low) // the lowest set bit and the set bits adjacent to it
	s.free[k].And(^run)
	first := k*64 + uint32(bits.TrailingZeros64(run))
	s.append(first, first+uint32(bits.OnesCount64(run))-1)
	return true
}

// PostRecv implements driver.SRQ.
func (s *srq) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	if s.ctx.memory.Pageable() {
		return s.postBesideFaults(wrs)
	}
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
		s.publish()
	}
	return n, err
}

// publish writes the number of receives posted to the doorbell record.
func (s *srq) publish() { mmio.Publish32BE(&s.record.words[recvCounter], s.count&0xffff) }

// Modify implements driver.SRQ.
func (s *srq) Modify(maxWR int, modify driver.Command) error {
	if maxWR > 0 {
		return notSupported("modify", "the device does not resize shared receive queues: create another one")
	}
	_, err := modify(nil, nil)
	return err
}

// Retire implements driver.SRQ.
func (s *srq) Retire() error {
	s.faults.Lock()
	defer s.faults.Unlock()
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
	return s.backing.free(s.ctx, true)
}
