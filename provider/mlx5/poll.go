package mlx5

import (
	"math/bits"
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
	kind uint64 // opcode and flags, where a WC has them
	ex   uint64 // mask of what the CQE says in the place of the immediate
}{
	cqeWriteImm: {uint64(uverbs.WCRecvRDMAImm)<<wcOpcode | uint64(uverbs.WCWithImm)<<wcFlags, 0xffffffff << 32},
	cqeSend:     {uint64(uverbs.WCRecv) << wcOpcode, 0},
	cqeSendImm:  {uint64(uverbs.WCRecv)<<wcOpcode | uint64(uverbs.WCWithImm)<<wcFlags, 0xffffffff << 32},
	cqeSendInv:  {uint64(uverbs.WCRecv)<<wcOpcode | uint64(uverbs.WCWithInv)<<wcFlags, 0xffffffff << 32},
}

// rawIndex is the mask of the index by which a CQE names its target, in the
// bytes' own order. noIndex is none of them.
const (
	rawIndex = 0xffffff00
	noIndex  = 1
)

// Poll implements uverbs.ProviderCQ. The loop takes what is common and calls
// nothing, so that all it works on stays in registers. At the first entry that is
// not, it leaves the rest of the call to others.
//
//go:nosplit
func (q *cq) Poll(wcs []uverbs.WC) (int, error) {
	ci, n := q.ci, 0
	var v uint64
	for ; n < len(wcs); n++ {
		e, lap := q.entryAt(ci), uint64(ci)*q.perLap>>32
		if v = be(mmio.Acquire64(&e[7])); (v^lap)&ownerBit != 0 {
			break
		}
		if key := uint32(e[4]) & rawIndex; key != q.key {
			if !q.simple {
				return q.pollRest(wcs, n, ci)
			}
			k := bits.ReverseBytes32(key)
			p := q.ctx.targets.pages[k>>pageBits&pageMask].Load()
			if p == nil {
				return q.pollRest(wcs, n, ci)
			}
			t := p[k&pageMask].Load()
			if t == nil {
				return q.pollRest(wcs, n, ci)
			}
			q.last, q.key = t, key
		}
		t, wc := q.last, wordsOfWC(&wcs[n])
		at := uint32(v >> 16)
		if v&(opcodeMask|formatMask) == cqeRequester<<opcodeShift {
			if at &= t.sendMask; int(at) >= len(t.sends) {
				return q.pollRest(wcs, n, ci)
			}
			note := &t.sends[at]
			meta, length := note.meta, uint64(0)
			if uint8(meta) != 0 {
				if meta&metaSilent != 0 {
					return q.pollRest(wcs, n, ci)
				}
				if length = atomicSize; meta&metaLength != 0 {
					length = be(e[5]) & 0xffffffff
				}
				meta &^= metaRare
			}
			wc[wcWRID] = note.wrID
			wc[wcTimestamp] = be(e[6])
			wc[wcLength] = length
			wc[wcNumbers] = v >> 32 & indexMask
			wc[wcVendor] = 0
			wc[wcKind] = uint64(meta) // the opcode is at the same place
			mmio.Release32(t.sendTail, note.end)
		} else {
			if at &= t.recvMask & 0xffff; v&opcodeMask >= commonOpcodes<<opcodeShift || v&formatMask != 0 || t.srq != nil || int(at) >= len(t.recvs) {
				return q.pollRest(wcs, n, ci)
			}
			wc.arrival(t.recvs[at], e, v)
			mmio.Release32(t.recvTail, *t.recvTail+1)
		}
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

// arrival writes a completion of a receive.
func (w *wcWords) arrival(wrID uint64, e *block, v uint64) {
	from, lid := be(e[3])>>32, be(e[2])
	arrived := &arrivals[v>>opcodeShift&7]
	w[wcWRID] = wrID
	w[wcTimestamp] = be(e[6])
	w[wcLength] = be(e[5])&0xffffffff | be(e[4])<<32&arrived.ex
	w[wcNumbers] = v>>32&indexMask | from&indexMask<<32
	w[wcVendor] = lid & 0xffff << wcSLID
	w[wcKind] = arrived.kind | from>>24&0xf<<wcSL | lid>>48&0x7f<<wcPathBits
	if from&grhMask != 0 {
		w[wcKind] |= uint64(uverbs.WCGRH) << wcFlags
	}
}

const grhMask = 3 << 28 // the GRH area of the buffer is valid

// idle is what Poll answers when there is nothing.
func (q *cq) idle() error {
	if q.retired.Load() {
		return uverbs.ErrClosed
	}
	if q.gone.Load() {
		return uverbs.ErrDeviceGone
	}
	return q.lost
}
