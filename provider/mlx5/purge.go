package mlx5

import (
	"github.com/goverbs/goverbs/internal/provider"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// Purge implements driver.Purger. It removes the entries of gone, working from the newest
// to the oldest, and moves the remaining entries up. The device may write entries of other queues
// meanwhile, which come after those.
func (q *cq) Purge(gone any) {
	if g := queuesOf(gone); g != nil {
		q.squeeze(&g.target)
		return
	}
	switch g := unwatched(gone).(type) {
	case *srq:
		q.squeeze(&g.target)
	case *wq:
		q.squeeze(&g.target)
	}
}

func (q *cq) squeeze(t *target) {
	if q.last == t {
		q.last, q.key = nil, noIndex
	}
	end := q.ci
	for ; end-q.ci <= q.mask; end++ {
		if _, ok := q.mine(end); !ok {
			break
		}
	}
	dropped := uint32(0)
	for i := end; i != q.ci; {
		i--
		if q.drop(i, t) {
			dropped++
		} else if dropped > 0 {
			copyEntry(q, i+dropped, q, i)
		}
	}
	if dropped > 0 {
		q.ci += dropped
		mmio.Publish32BE(&q.record.words[consumed], q.ci&indexMask)
	}
}

// drop reports whether entry i is about t. If it is about a receive of an SRQ, drop returns the
// slot to the SRQ, or, if the receive met an absent page, posts it again.
func (q *cq) drop(i uint32, t *target) bool {
	e := q.at(i)
	v := be(e[7])
	about := q.about(e, v, t)
	if about && arrival(v) && t.srq != nil {
		at := uint32(v>>16) & 0xffff
		if uint32(v)&opcodeMask == cqeRespError<<opcodeShift && pageFault(e) {
			t.srq.fault(at)
		} else {
			t.srq.drop(at)
		}
	}
	return about
}

// about reports whether an entry whose last word is v is about t.
func (q *cq) about(e *block, v uint64, t *target) bool {
	if uint32(v)>>opcodeShift&0xf == cqeResize {
		return false
	}
	if !q.ctx.indexed {
		if t.sq != nil { // entries name an SRQ in another field
			return uint32(v>>32)&indexMask == t.key
		}
		if !arrival(v) {
			return false
		}
	}
	return uint32(be(e[4])>>32)&indexMask == t.key
}

// arrival reports whether an entry whose last word is v is about a receive.
func arrival(v uint64) bool {
	opcode := uint32(v) >> opcodeShift & 0xf
	return opcode >= cqeWriteImm && opcode <= cqeSendInv || opcode == cqeRespError
}

// copyEntry copies an entry, also within a CQ, and sets the owner bit for its new index.
func copyEntry(dst *cq, to uint32, src *cq, from uint32) {
	d, s := dst.at(to), src.at(from)
	if src.wide != 0 {
		dst.ring[(to&dst.mask)<<1] = src.ring[(from&src.mask)<<1]
	}
	*d = *s
	d[7] = be(be(s[7])&^ownerBit | dst.owner(to))
}

// Resize implements driver.CQ.
//
// The device writes a resize entry where it leaves the old ring, and goes on in the new ring one
// index later. Entries that have not been polled by then are copied to the new ring, with the
// owner bits for their new indexes.
func (q *cq) Resize(n int, resize driver.ResizeCommand) (driver.Reply, error) {
	const op = "resize"
	entries, err := cqEntries(op, n)
	if err != nil || entries == int(q.mask)+1 {
		return driver.Reply{Entries: entries - 1}, err
	}
	mem, err := queueMemory(op, q.rings, pages(entries*q.size), q.ctx.set.cqPages)
	if err != nil {
		return driver.Reply{}, err
	}
	next := &cq{size: q.size}
	next.use(mem, entries)
	next.vacate(q.ci + 1)
	req := &uapi.Mlx5IbResizeCq{BufAddr: addressOf(mem.Bytes()), CqeSize: uint16(q.size)}
	reply, err := resize(n, ioctl.BytesOf(req), nil)
	if err != nil {
		return reply, provider.Join(pinned(err, mem), mem.Retire())
	}
	reply.Entries = entries - 1
	if !q.carry(next) {
		q.lost = errNoEnd
		q.halted.Store(true)
	}
	old := q.mem
	q.use(mem, entries)
	q.ci++
	mmio.Publish32BE(&q.record.words[consumed], q.ci&indexMask)
	return reply, provider.Join(q.lost, old.Retire())
}

// carry copies the entries that have not been polled. It returns false if the old ring has no
// resize entry.
func (q *cq) carry(next *cq) bool {
	for i := q.ci; i-q.ci <= q.mask; i++ {
		v, ok := q.mine(i)
		if !ok {
			return false
		}
		if uint32(v)>>opcodeShift&0xf == cqeResize {
			return true
		}
		copyEntry(next, i+1, q, i)
	}
	return false
}

// errNoEnd is returned by Poll when completions may have been lost.
var errNoEnd error = &uverbs.Error{Op: "resize", Kind: uverbs.ErrABI,
	Detail: "the device has not said where the old queue ends: completions may be lost, close the CQ"}
