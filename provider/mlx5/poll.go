package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// CQE opcodes.
const (
	cqeRequester  = 0
	cqeWriteImm   = 1
	cqeSend       = 2
	cqeSendImm    = 3
	cqeSendInv    = 4
	cqeResize     = 5
	cqeReqError   = 13
	cqeRespError  = 14
	commonOpcodes = 5 // those below
)

// arrivals is what a receive completes as, by CQE opcode.
var arrivals = [8]struct {
	op    uverbs.WCOpcode
	flags uverbs.WCFlags
	ex    uint32 // mask of what the CQE says in the place of the immediate
}{
	cqeWriteImm: {uverbs.WCRecvRDMAImm, uverbs.WCWithImm, ^uint32(0)},
	cqeSend:     {uverbs.WCRecv, 0, 0},
	cqeSendImm:  {uverbs.WCRecv, uverbs.WCWithImm, ^uint32(0)},
	cqeSendInv:  {uverbs.WCRecv, uverbs.WCWithInv, ^uint32(0)},
}

// Poll implements uverbs.ProviderCQ. The loop takes what is common and calls
// nothing, so that all it works on stays in registers. At the first entry that is
// not, it leaves the rest of the call to others.
func (q *cq) Poll(wcs []uverbs.WC) (int, error) {
	ci, n := q.ci, 0
	if !q.simple {
		return q.pollAny(wcs, 0)
	}
	for ; n < len(wcs); n++ {
		e := &q.ring[(ci&q.mask)<<(q.wide&31)|q.wide]
		v := be(mmio.Acquire64(&e[7]))
		if (v^uint64(ci>>(q.log&31)))&ownerBit != 0 {
			break
		}
		t := q.last
		if key := uint32(be(e[4])>>32) & indexMask; key != q.key {
			p := q.ctx.targets.pages[key>>pageBits&pageMask].Load()
			if p == nil {
				return q.pollRest(wcs, n, ci)
			}
			if t = p[key&pageMask].Load(); t == nil {
				return q.pollRest(wcs, n, ci)
			}
			q.last, q.key = t, key
		}
		kind := uint32(v) & (opcodeMask | formatMask)
		at := uint32(v>>16) & 0xffff
		wc := &wcs[n]
		switch {
		case kind == cqeRequester:
			at &= t.sendMask
			if int(at) >= len(t.sends) {
				return q.pollRest(wcs, n, ci)
			}
			note := &t.sends[at]
			wc.WRID = note.wrID
			wc.ByteLen = 0
			if note.meta&(metaLength|metaAtomic) != 0 {
				wc.ByteLen = atomicSize
				if note.meta&metaLength != 0 {
					wc.ByteLen = uint32(be(e[5]))
				}
			}
			wc.Imm, wc.SrcQP = 0, 0
			wc.SLID, wc.SL, wc.PathBits = 0, 0, 0
			wc.Opcode, wc.Flags = uverbs.WCOpcode(note.meta), 0
			mmio.Release32(t.sendTail, note.end)
		case kind < commonOpcodes<<opcodeShift && kind&formatMask == 0 && t.srq == nil:
			at &= t.recvMask
			if int(at) >= len(t.recvs) {
				return q.pollRest(wcs, n, ci)
			}
			wc.WRID = t.recvs[at]
			from := uint32(be(e[3]) >> 32)
			arrived := &arrivals[kind>>opcodeShift&7]
			wc.ByteLen = uint32(be(e[5]))
			wc.Imm = uint32(be(e[4])) & arrived.ex
			wc.SrcQP = from & indexMask
			wc.SLID, wc.SL, wc.PathBits = uint16(be(e[2])), uint8(from>>24)&0xf, uint8(be(e[2])>>48)&0x7f
			wc.Opcode, wc.Flags = arrived.op, arrived.flags|grh(from)
			mmio.Release32(t.recvTail, *t.recvTail+1)
		default:
			return q.pollRest(wcs, n, ci)
		}
		wc.Timestamp = be(e[6])
		wc.QPNum = uint32(v>>32) & indexMask
		wc.VendorErr, wc.PKeyIndex, wc.Status = 0, 0, 0
		ci++
	}
	if n == 0 {
		return 0, q.idle()
	}
	q.ci = ci
	mmio.Publish32BE(&q.record.words[consumed], ci&indexMask)
	// What was read may have been zero pages. Retire says so before it maps them.
	if q.retired.Load() {
		return 0, uverbs.ErrClosed
	}
	runtime.KeepAlive(q)
	return n, nil
}

// grh tells that the GRH area of a buffer is valid.
func grh(from uint32) uverbs.WCFlags {
	const grhMask = 3 << 28
	if from&grhMask != 0 {
		return uverbs.WCGRH
	}
	return 0
}

// idle is what Poll answers when there is nothing.
func (q *cq) idle() error {
	if q.retired.Load() {
		return uverbs.ErrClosed
	}
	return q.lost
}
