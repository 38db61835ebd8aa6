package irdma

import (
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
	rings  []*cqRing // the last one is in use. There may be entries in those before
	ctx    *deviceContext
	memory driver.Memory
	shadow *shadow
	area   *region // of the shadow, if it is not at the end of the ring
	old    []*region
	number uint32
	armed  armed

	failure atomic.Pointer[error] // what Poll returns if the queue is empty, or nil
	retired atomic.Bool
}

// A cqRing is the memory of entries.
type cqRing struct {
	entries []cqe
	head    uint32 // the next entry
	valid   uint64 // its valid bit
	mem     *region
}

// A shadow is what the device reads of a CQ: the index of the next entry, and how it is armed.
type shadow [shadowSize / 8]uint64

const (
	shadowSize = 64
	headAt     = 0 // words
	armAt      = 4
)

// The fields of the word that arms a CQ.
const (
	resizesMask = 1<<14 - 1 // how often the program has left a ring
	armNext     = 1 << 14
	armNextSE   = 1 << 15 // for solicited completions
	sequenceAt  = 16
	sequenceMax = 3
)

// armed is what is known of the event that was requested last.
type armed struct {
	events uint32 // that had been read
	all    bool   // for each completion
}

// Features of a device: bits of the kernel's reply that are not in its header.
const featureResize = 1 << 1

const (
	minEntries = 4
	// entrySlots is how many entries a completion may have.
	entrySlots = 2
)

// entriesFor returns the entries of a ring for n completions, or false if there cannot be so many.
func (c *deviceContext) entriesFor(n int) (entries int, ok bool) {
	if n > c.mostCompletions() {
		return 0, false
	}
	return max((n+1)*entrySlots, minEntries), true
}

// mostCompletions returns the size of the largest CQ.
func (c *deviceContext) mostCompletions() int { return int(c.limits.MaxHwCqSize)/entrySlots - 1 }

// newRing allocates a ring, with so many further bytes, and registers it.
func (c *deviceContext) newRing(memory driver.Memory, op string, n, further int) (*cqRing, error) {
	size := pages(n * entrySize)
	mem, err := c.newRegion(memory, op, size+further, c.pd, uapi.IrdmaMemRegReq{RegType: uapi.IRDMA_MEMREG_TYPE_CQ,
		CqPages: uint16(size / pageSize)})
	if err != nil {
		return nil, err
	}
	return &cqRing{entries: entriesOf(mem.mem, n), valid: valid, mem: mem}, nil
}

// CreateCQ implements driver.Context.
func (c *deviceContext) CreateCQ(cfg *driver.CQConfig, create driver.CQCommand) (provider.CQ, driver.Reply, error) {
	const op = "create CQ"
	var reply driver.Reply
	asked := cfg.Entries
	n, ok := c.entriesFor(asked)
	if !ok {
		return nil, reply, provider.Limit(op, "Entries", asked, c.mostCompletions())
	}
	q := &cq{ctx: c, memory: cfg.Memory}
	if err := q.allocate(op, n); err != nil {
		return nil, reply, provider.Join(err, q.Retire(false))
	}
	cfg.Entries = n
	req := &uapi.IrdmaCreateCqReq{UserCqBuf: addressOf(q.rings[0].mem.mem), UserShadowArea: q.shadowAddress()}
	resp := new(uapi.IrdmaCreateCqResp)
	reply, err := create(ioctl.BytesOf(req), ioctl.BytesOf(resp))
	switch {
	case err == nil && resp.CqId > numberMask:
		err = provider.BadABI(op, "CQ %d", resp.CqId)
	case err == nil && int(resp.CqSize) != n:
		err = provider.BadABI(op, "%d entries instead of %d", resp.CqSize, n)
	}
	if err != nil {
		return q, reply, err // the ring is released after the kernel's CQ
	}
	q.number, reply.Entries = resp.CqId, n/entrySlots-1
	return q, reply, nil
}

// allocate allocates the ring and the shadow area, which is behind it unless it must survive the ring.
func (q *cq) allocate(op string, n int) error {
	c := q.ctx
	further := shadowSize
	if c.limits.FeatureFlags&featureResize != 0 {
		further = 0
	}
	ring, err := c.newRing(q.memory, op, n, further)
	if err != nil {
		return err
	}
	q.rings = []*cqRing{ring}
	if further > 0 {
		q.shadow = shadowOf(ring.mem.mem, pages(n*entrySize))
		return nil
	}
	q.area, err = c.newRegion(q.memory, op, shadowSize, c.pd, uapi.IrdmaMemRegReq{RegType: uapi.IRDMA_MEMREG_TYPE_CQ,
		CqPages: 1})
	if err != nil {
		return err
	}
	q.shadow = shadowOf(q.area.mem, 0)
	return nil
}

func (q *cq) shadowAddress() uint64 {
	if q.area != nil {
		return addressOf(q.area.mem)
	}
	r := q.rings[0]
	return addressOf(r.mem.mem) + uint64(pages(len(r.entries)*entrySize))
}

// Arm implements driver.CQ. A CQ that is armed for each completion, as far as is known, remains so.
func (q *cq) Arm(solicitedOnly bool, events uint32) error {
	if q.retired.Load() {
		return uverbs.ErrClosed
	}
	all := !solicitedOnly || q.armed.all && q.armed.events == events
	q.armed = armed{events, all}
	word := q.shadow[armAt]
	word = word&resizesMask | (word>>sequenceAt+1)&sequenceMax<<sequenceAt | armNextSE
	if all {
		word |= armNext
	}
	mmio.Store64(&q.shadow[armAt], word)
	q.ctx.bell.ringCQ(q.number)
	runtime.KeepAlive(q)
	return nil
}

// Fail implements driver.CQ.
func (q *cq) Fail(err error) { q.failure.Store(&err) }

// Retire implements driver.CQ.
func (q *cq) Retire(inUse bool) error {
	q.retired.Store(true)
	err := q.area.release(inUse)
	for _, r := range q.rings {
		err = provider.Join(err, r.mem.release(inUse))
	}
	return provider.Join(err, q.releaseOld(inUse))
}

// releaseOld releases rings that have been left and polled.
func (q *cq) releaseOld(inUse bool) (err error) {
	for _, r := range q.old {
		err = provider.Join(err, r.release(inUse))
	}
	q.old = nil
	return err
}

// Resize implements driver.CQ. The device goes on in another ring. Entries in the old one are polled before.
func (q *cq) Resize(n int, resize driver.ResizeCommand) (driver.Reply, error) {
	const op = "resize CQ"
	c := q.ctx
	var reply driver.Reply
	if c.limits.FeatureFlags&featureResize == 0 {
		return reply, provider.NotSupported(op, "the device cannot resize CQs: create another one")
	}
	entries, ok := c.entriesFor(n)
	if !ok {
		return reply, provider.Limit(op, "Entries", n, c.mostCompletions())
	}
	if entries == len(q.current().entries) {
		return driver.Reply{Entries: n}, nil
	}
	if len(q.rings) > maxRings {
		q.leaveEmpty()
	}
	if len(q.rings) > maxRings {
		return reply, errRings
	}
	if err := q.releaseOld(true); err != nil {
		return reply, err
	}
	ring, err := c.newRing(q.memory, op, entries, 0)
	if err != nil {
		return reply, err
	}
	reply, err = resize(entries, ioctl.BytesOf(&uapi.IrdmaResizeCqReq{UserCqBuffer: addressOf(ring.mem.mem)}), nil)
	if err != nil {
		return reply, provider.Join(err, ring.mem.release(false))
	}
	q.rings = append(q.rings, ring)
	reply.Entries = n
	return reply, nil
}

// maxRings limits the rings with entries that have not been polled.
const maxRings = 16

// errRings is returned by a resize when a CQ has been resized often, and not polled.
var errRings error = &uverbs.Error{Op: "resize CQ", Kind: uverbs.ErrBusy,
	Detail: "16 queues that earlier calls have replaced have not been polled to their end: poll the CQ first"}

// current returns the ring in use.
func (q *cq) current() *cqRing { return q.rings[len(q.rings)-1] }

// leaveEmpty leaves the rings without entries before the last one. The device has left them before the last command
// that resized the CQ, so that no entry comes any more.
func (q *cq) leaveEmpty() {
	n := 0
	for ; n < len(q.rings)-1; n++ {
		if r := q.rings[n]; mmio.Acquire64(&r.entries[r.head][flagsWord])&valid == r.valid {
			break
		}
	}
	if n > 0 {
		q.leave(n)
	}
}

// leave notes that n rings have no entries any more.
func (q *cq) leave(n int) {
	for _, r := range q.rings[:n] {
		q.old = append(q.old, r.mem)
	}
	clear(q.rings[:n])
	q.rings = q.rings[n:]
	word := q.shadow[armAt]
	mmio.Store64(&q.shadow[armAt], word&^resizesMask|(word+uint64(n))&resizesMask)
}
