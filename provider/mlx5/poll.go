package mlx5

import (
	"math/bits"

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
	commonOpcodes = 5 // opcodes below this one are handled by the fast path
)

// An arrived describes how a receive completes.
type arrived struct {
	kind uint64 // opcode and flags, at their places in a WC
	ex   uint64 // mask of the CQE's immediate field, or 0
}

// arrivals is indexed by CQE opcode.
var arrivals = [8]arrived{
	cqeWriteImm: {uint64(uverbs.WCRecvRDMAImm)<<wcOpcode | uint64(uverbs.WCWithImm)<<wcFlags, 0xffffffff << 32},
	cqeSend:     {uint64(uverbs.WCRecv) << wcOpcode, 0},
	cqeSendImm:  {uint64(uverbs.WCRecv)<<wcOpcode | uint64(uverbs.WCWithImm)<<wcFlags, 0xffffffff << 32},
	cqeSendInv:  {uint64(uverbs.WCRecv)<<wcOpcode | uint64(uverbs.WCWithInv)<<wcFlags, 0xffffffff << 32},
}

// rawIndex masks the index by which a CQE names its target, in big-endian byte order. noIndex is
// not a valid index.
const (
	rawIndex = 0xffffff00
	noIndex  = 1
)

// Poll implements driver.CQ. The loop handles the common completions and calls no
// functions, so that its variables stay in registers. At the first other entry it leaves the rest
// of the call to pollAny.
//
//go:nosplit
func (q *cq) Poll(wcs []uverbs.WC) (int, error) {
	wcs = wcs[:len(wcs):len(wcs)] // one value fewer in registers
	ci, n := q.ci, 0
	var v uint64
	for ; n < len(wcs); n++ {
		e, lap := q.entryAt(ci), uint64(ci)*q.perLap>>32
		if v = be(mmio.Acquire64(&e[7])); (v^lap)&ownerBit != 0 {
			break
		}
		if key := uint32(e[4]) & rawIndex; key != q.key {
			if !q.simple {
				return q.pollAny(wcs, n, ci)
			}
			k := bits.ReverseBytes32(key)
			p := q.ctx.targets.pages[k>>pageBits&pageMask].Load()
			if p == nil {
				return q.pollAny(wcs, n, ci)
			}
			t := p[k&pageMask].Load()
			if t == nil {
				return q.pollAny(wcs, n, ci)
			}
			q.last, q.key = t, key
		}
		t, wc := q.last, wordsOfWC(&wcs[n])
		at := uint32(v >> 16)
		if v&(opcodeMask|formatMask) == cqeRequester<<opcodeShift {
			if at &= t.sendMask; int(at) >= len(t.sends) {
				return q.pollAny(wcs, n, ci)
			}
			note := &t.sends[at]
			meta := note.meta
			wc[wcWRID] = note.wrID
			wc[wcTimestamp] = be(e[6])
			wc[wcLength] = 0
			wc[wcNumbers] = v >> 32 & indexMask
			wc[wcVendor] = 0
			if uint8(meta) != 0 {
				if meta&metaSilent != 0 {
					return q.pollAny(wcs, n, ci)
				}
				wc[wcLength] = atomicSize
				if meta&metaLength != 0 {
					wc[wcLength] = be(e[5]) & 0xffffffff
				}
				meta &^= metaRare
			}
			wc[wcKind] = uint64(meta) // the opcode is at the same place in meta and wcKind
			mmio.Release32(t.sendTail, note.end)
		} else {
			at &= t.recvMask & 0xffff
			if v&opcodeMask >= commonOpcodes<<opcodeShift || v&formatMask != 0 ||
				t.srq != nil || int(at) >= len(t.recvs) {
				return q.pollRecv(wcs, n, ci)
			}
			a := &arrivals[v>>opcodeShift&7]
			wc.message(t.recvs[at], e, a)
			wc.sender(be(e[3]), be(e[2]), v, a)
			mmio.Release32(t.recvTail, *t.recvTail+1)
		}
		ci++
	}
	if n > 0 {
		q.ci = ci
		mmio.Publish32BE(&q.record.words[consumed], ci&indexMask)
	}
	// The entries may have been read from zero pages. Retire sets halted before it maps those. Up to
	// this read q, and with it the mapping, is reachable.
	if q.halted.Load() {
		return q.halt(n)
	}
	return n, nil
}

// message and sender write the completion of a receive. They are separate functions so that the
// compiler inlines them.
func (w *wcWords) message(wrID uint64, e *block, a *arrived) {
	w[wcWRID] = wrID
	w[wcTimestamp] = be(e[6])
	w[wcLength] = be(e[5])&0xffffffff | be(e[4])<<32&a.ex
}

// from and lid are the third and second word of the entry.
func (w *wcWords) sender(from, lid, v uint64, a *arrived) {
	w[wcNumbers] = v>>32&indexMask | from>>32&indexMask<<32
	w[wcVendor] = lid << wcSLID
	kind := a.kind | from>>56&0xf<<wcSL | lid>>48&0x7f<<wcPathBits
	if from&grhMask != 0 {
		kind |= uint64(uverbs.WCGRH) << wcFlags
	}
	w[wcKind] = kind
}

const grhMask = 3 << 60 // the GRH area of the buffer is valid

// halt returns the result of a Poll that found n completions on a halted queue.
func (q *cq) halt(n int) (int, error) {
	switch {
	case q.retired.Load():
		return 0, uverbs.ErrClosed
	case n > 0:
		return n, nil
	}
	if f := q.failure.Load(); f != nil {
		return 0, *f
	}
	return 0, q.lost
}
