package bnxt_re

import (
	"runtime"
	"sync"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// srq implements driver.SRQ. The device takes receives from the ring in order, and completes them in any order, by
// their tags. Posts take free tags, and polls of any CQ return them.
type srq struct {
	ring   []slotWords
	size   uint32 // receives
	place  uint32 // of the next receive in the ring
	epoch  uint32 // changes when place goes back to 0
	maxSGE int
	limit  uint32 // of the create command: an event is wanted when fewer receives are left
	armed  bool   // the device knows the limit or another one, or there is none

	mu    sync.Mutex // of what follows
	wrIDs []uint64   // by tag
	used  []bool     // by tag
	free  []uint32   // a ring of tags
	head  uint32     // of free
	left  uint32     // free tags; the last one is never used

	ctx     *deviceContext
	mem     *provider.Mapping
	toggle  toggle
	number  uint32
	dropped func(wrID uint64) // of OnDrop, or nil
}

// CreateSRQ implements driver.Context.
func (c *deviceContext) CreateSRQ(cfg *driver.SRQConfig, create driver.Command) (provider.SRQ, driver.Reply, error) {
	const op = "create SRQ"
	var reply driver.Reply
	most, maxSGE := max(int(c.attr.MaxSrqWr), 1)-1, min(int(c.attr.MaxSrqSge), fixedSGEs) // the driver refuses MaxSrqWr
	switch {
	case cfg.XRC:
		return nil, reply, provider.NotSupported(op, "the device has no XRC: leave XRCD out")
	case cfg.MaxWR > most:
		return nil, reply, provider.Limit(op, "MaxWR", cfg.MaxWR, most)
	case cfg.MaxSGE > maxSGE:
		return nil, reply, provider.Limit(op, "MaxSGE", cfg.MaxSGE, maxSGE)
	}
	n := c.depth(cfg.MaxWR+1, int(c.attr.MaxSrqWr)+1)
	s := &srq{ctx: c, size: uint32(n), maxSGE: max(cfg.MaxSGE, 1), limit: uint32(cfg.Limit), armed: cfg.Limit == 0,
		wrIDs: make([]uint64, n), used: make([]bool, n), free: make([]uint32, n), left: uint32(n)}
	for i := range s.free {
		s.free[i] = uint32(i)
	}
	var err error
	if s.mem, err = c.ringMemory(cfg.Memory, op, n*fixedSlots*slotSize); err != nil {
		return nil, reply, err
	}
	s.ring = slotsOf(s.mem, n*fixedSlots)
	resp := new(uapi.BnxtReSrqResp)
	if reply, err = create(ioctl.BytesOf(&uapi.BnxtReSrqReq{Srqva: addressOf(s.mem)}), ioctl.BytesOf(resp)); err != nil {
		return nil, reply, provider.Join(driver.Pinned(err, len(s.mem.Bytes())), s.mem.Release(false))
	}
	s.number = resp.Srqid
	if resp.CompMask&uapi.BNXT_RE_SRQ_TOGGLE_PAGE_SUPPORT != 0 {
		if s.toggle, err = c.mapToggle(uapi.BNXT_RE_SRQ_TOGGLE_MEM, s.number); err != nil {
			return nil, reply, provider.Join(err, s.Retire())
		}
	}
	reply.SRQ = driver.SRQCap{MaxWR: n - 1, MaxSGE: s.maxSGE}
	return s, reply, nil
}

// take takes a tag for a receive. It returns false if there is none.
func (s *srq) take(wrID uint64) (tag uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 1 {
		return 0, false
	}
	tag = s.free[s.head]
	if s.head++; s.head == s.size {
		s.head = 0
	}
	s.left--
	s.wrIDs[tag], s.used[tag] = wrID, true
	return tag, true
}

// release frees the tag of a receive, and returns its WRID. It returns false if the receive is not outstanding.
func (s *srq) release(tag uint32) (wrID uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tag >= s.size || !s.used[tag] {
		return 0, false
	}
	s.used[tag] = false
	at := s.head + s.left
	if at >= s.size {
		at -= s.size
	}
	s.free[at] = tag
	s.left++
	return s.wrIDs[tag], true
}

// posted returns how many receives are outstanding.
func (s *srq) posted() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size - s.left
}

// PostRecv implements driver.SRQ.
func (s *srq) PostRecv(wrs []uverbs.RecvWR) (n int, err error) {
	rung := 0
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		if err = checkRecv(wr, s.maxSGE); err != nil {
			break
		}
		tag, ok := s.take(wr.WRID)
		if !ok {
			err = uverbs.ErrQueueFull
			break
		}
		writeRecv(s.ring[s.place*fixedSlots:][:fixedSlots], wr, tag, len(wr.SGL))
		if s.place++; s.place == s.size {
			s.place, s.epoch = 0, s.epoch^1
		}
		if !s.armed && s.posted() > s.limit {
			s.announce()
			s.armed = true
			s.ctx.bell.ring(armSRQ, s.number, s.limit, 0, s.toggle.value())
			rung = n + 1
		}
	}
	if n > rung {
		s.announce()
	}
	runtime.KeepAlive(s)
	return n, err
}

// announce rings the doorbell.
func (s *srq) announce() { s.ctx.bell.ring(ringSRQ, s.number, s.place, s.epoch, 0) }

// Modify implements driver.SRQ.
func (s *srq) Modify(maxWR int, modify driver.Command) error {
	if maxWR > 0 {
		return provider.NotSupported("modify", "SRQs of the device cannot be resized: create another one")
	}
	_, err := modify(nil, nil)
	return err
}

// SetLimit implements driver.Limited. The kernel's driver has told the device. It leaves only the limit of the create
// command to the program.
func (s *srq) SetLimit(int) { s.armed = true }

// OnDrop implements driver.Dropper.
func (s *srq) OnDrop(f func(wrID uint64)) { s.dropped = f }

// drop releases a receive whose completion is dropped.
func (s *srq) drop(tag uint32) {
	if id, ok := s.release(tag); ok && s.dropped != nil {
		s.dropped(id)
	}
}

// Retire implements driver.SRQ.
func (s *srq) Retire() error { return provider.Join(s.mem.Retire(), s.toggle.page.Retire()) }
