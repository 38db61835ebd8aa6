package mlx5

import (
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// pollAny continues a Poll that has reached entry ci with n completions. It handles entries of
// every kind. It handles the common entries of short messages itself: the target is the same as in
// the previous entry and has its own receive queue, and the first SGE has room for the message. All
// other entries go to take.
//
//go:noinline
func (q *cq) pollAny(wcs []uverbs.WC, n int, ci uint32) (int, error) {
	var err error
	for n < len(wcs) {
		e := q.entryAt(ci)
		v := be(mmio.Acquire64(&e[7]))
		if (v^q.owner(ci))&ownerBit != 0 {
			break
		}
		if t := q.last; v&formatMask == carries32 && uint32(e[4])&rawIndex == q.key {
			kind, at, size := v>>opcodeShift&0xf, uint32(v>>16)&t.recvMask&0xffff, uint32(be(e[5]))
			if kind-cqeWriteImm <= cqeSendInv-cqeWriteImm && int(at) < len(t.recvs) && size <= roomIn32 {
				if !q.storing {
					q.storing = true
					q.memory.Begin()
				}
				g := t.rq.firstIn(at)
				w := be(g[0])
				if to := q.memory.Room(uint32(w), be(g[1]), size); to != nil && size <= uint32(w>>32) {
					copyShort(to, e)
					wc, a := wordsOfWC(&wcs[n]), &arrivals[kind&7]
					wc.message(t.recvs[at], e, a)
					wc[wcNumbers], wc[wcVendor], wc[wcKind] = v>>32&indexMask, 0, a.kind
					mmio.Release32(t.recvTail, *t.recvTail+1)
					ci++
					n++
					continue
				}
			}
		}
		q.ci = ci
		var told bool
		if told, err = q.take(e, v, &wcs[n]); err != nil && n > 0 {
			err = nil // the next call returns the error of this entry
			break
		}
		ci++
		if err != nil {
			break
		}
		if told {
			n++
		}
	}
	if q.storing {
		q.memory.End()
		q.storing = false
	}
	q.ci = ci
	mmio.Publish32BE(&q.record.words[consumed], ci&indexMask)
	if q.halted.Load() && (err == nil || q.retired.Load()) {
		return q.halt(n)
	}
	runtime.KeepAlive(q)
	return n, err
}

// pollRecv is pollAny after an entry that the device has written, of target q.last. It is faster
// in the common case of a short message that is the only completion of the call.
//
//go:noinline
func (q *cq) pollRecv(wcs []uverbs.WC, n int, ci uint32) (int, error) {
	t, e := q.last, q.entryAt(ci)
	v := be(e[7])
	kind, at, size := v>>opcodeShift&0xf, uint32(v>>16)&t.recvMask&0xffff, uint32(be(e[5]))
	if len(wcs) != 1 || v&formatMask != carries32 || kind-cqeWriteImm > cqeSendInv-cqeWriteImm ||
		int(at) >= len(t.recvs) || size > roomIn32 {
		return q.pollAny(wcs, n, ci)
	}
	one := (*[1]uverbs.WC)(wcs)
	g, id, tail := t.rq.firstIn(at), t.recvs[at], t.recvTail
	w := be(g[0])
	if size > uint32(w>>32) {
		return q.pollAny(one[:], 0, q.ci)
	}
	q.memory.Begin()
	to := q.memory.Room(uint32(w), be(g[1]), size)
	if to == nil {
		q.memory.End()
		return q.pollAny(one[:], 0, q.ci)
	}
	copyShort(to, e)
	q.memory.End()
	wc, a := wordsOfWC(&one[0]), &arrivals[v>>opcodeShift&7]
	wc.message(id, e, a)
	wc[wcNumbers], wc[wcVendor], wc[wcKind] = v>>32&indexMask, 0, a.kind
	mmio.Release32(tail, *tail+1)
	q.ci++
	mmio.Publish32BE(&q.record.words[consumed], q.ci&indexMask)
	if q.halted.Load() {
		return q.halt(1)
	}
	runtime.KeepAlive(q)
	return 1, nil
}

// firstIn returns the first data segment of receive i. It does not check i, which must be an
// index of the queue.
func (r *recvQueue) firstIn(i uint32) *segment {
	return (*segment)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.segments)), uintptr(i)*r.stride))
}

// copyShort fills to, which has at most 32 bytes, from the beginning of e.
func copyShort(to []byte, e *block) {
	last := len(to) - 16
	if last < 0 {
		copy(to, bytesOf(e)[:])
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(to))
	*(*[2]uint64)(p) = *(*[2]uint64)(unsafe.Pointer(e))
	*(*[2]uint64)(unsafe.Add(p, last)) = *(*[2]uint64)(unsafe.Add(unsafe.Pointer(e), last))
}
