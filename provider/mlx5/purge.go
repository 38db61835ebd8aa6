package mlx5

import (
	"errors"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// Purge implements uverbs.ProviderPurger: the entries of gone are squeezed out,
// from the newest back to the oldest, and those before them move up. What the
// device writes meanwhile is of other queues, and lies behind.
func (q *cq) Purge(gone any) {
	switch g := gone.(type) {
	case *qp:
		q.squeeze(&g.target)
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
			q.move(i+dropped, i)
		}
	}
	if dropped > 0 {
		q.ci += dropped
		mmio.Publish32BE(&q.record.words[consumed], q.ci&indexMask)
	}
}

// drop tells whether entry i is about t. If so, a receive of an SRQ that it
// tells of goes back to it.
func (q *cq) drop(i uint32, t *target) bool {
	e := q.at(i)
	v := be(e[7])
	about := q.about(e, v, t)
	if about && arrival(v) && t.srq != nil {
		t.srq.give(uint32(v>>16) & 0xffff)
	}
	return about
}

// about tells whether an entry, with the last word v, is about t.
func (q *cq) about(e *block, v uint64, t *target) bool {
	if uint32(v)>>opcodeShift&0xf == cqeResize {
		return false
	}
	if !q.ctx.indexed && t.sq != nil { // an SRQ is named in the other place
		return uint32(v>>32)&indexMask == t.key
	}
	return uint32(be(e[4])>>32)&indexMask == t.key
}

// arrival tells whether an entry is about a receive.
func arrival(v uint64) bool {
	opcode := uint32(v) >> opcodeShift & 0xf
	return opcode >= cqeWriteImm && opcode <= cqeSendInv || opcode == cqeRespError
}

// move copies entry from to the place of entry to, which keeps its owner bit.
func (q *cq) move(to, from uint32) {
	copyEntry(q, to, q, from)
}

// copyEntry copies an entry with the owner bit that it has at its new index.
func copyEntry(dst *cq, to uint32, src *cq, from uint32) {
	d, s := dst.at(to), src.at(from)
	if src.wide != 0 {
		dst.ring[(to&dst.mask)<<1] = src.ring[(from&src.mask)<<1]
	}
	*d = *s
	d[7] = be(be(s[7])&^ownerBit | dst.owner(to))
}

// Resize implements uverbs.ProviderCQ.
//
// The device writes an entry that says so where it leaves the old ring, and goes
// on in the new one, one index later. What has not been taken by then is copied,
// with its index in the new ring.
func (q *cq) Resize(n int, resize uverbs.ProviderCommand) (uverbs.ProviderReply, error) {
	const op = "resize"
	entries, err := cqEntries(op, n)
	if err != nil || entries == int(q.mask)+1 {
		return uverbs.ProviderReply{Entries: entries - 1}, err
	}
	mem, err := queueMemory(op, q.pd, pages(entries*q.size), q.ctx.set.cqPages)
	if err != nil {
		return uverbs.ProviderReply{}, err
	}
	next := &cq{size: q.size}
	next.use(mem, entries)
	next.vacate(q.ci + 1)
	req := &uapi.Mlx5IbResizeCq{BufAddr: addressOf(mem.Bytes()), CqeSize: uint16(q.size)}
	reply, err := resize(ioctl.BytesOf(req), nil)
	if err != nil {
		return reply, errors.Join(err, mem.Retire())
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
	return reply, errors.Join(q.lost, old.Retire())
}

// carry copies what has not been taken. It reports false when the old ring does
// not say where it ends.
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

// errNoEnd is what Poll answers when completions may have been lost.
var errNoEnd error = &uverbs.Error{Op: "resize", Kind: uverbs.ErrABI, Detail: "the device has not said where the old queue ends: completions may be lost, close the CQ"}
