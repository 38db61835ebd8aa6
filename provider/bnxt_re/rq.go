package bnxt_re

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/uverbs"
)

// A recvQueue is the receive half of a QP.
type recvQueue struct {
	ring   []slotWords
	stride uint32 // slots of a receive
	size   uint32 // receives
	room   uint32 // how many can be outstanding, fewer than size
	number uint32 // of the next receive, modulo size
	epoch  uint32 // changes when number goes back to 0
	count  uint32 // of receives so far

	wrIDs     []uint64      // by number
	announced atomic.Uint32 // count, as of the last doorbell
	completed atomic.Uint32 // receives polled so far. Polls change it, as they do last
	last      uint32        // the number of the first receive that has not completed
	flushing  atomic.Bool   // the device has reported that it completes nothing any more

	qpn    uint32
	cq     *cq
	bell   *doorbell
	maxSGE int
}

// checkRecv returns the error for a receive that cannot be written.
func checkRecv(wr *uverbs.RecvWR, maxSGE int) error {
	if len(wr.SGL) > maxSGE {
		return uverbs.ErrTooManySGEs
	}
	var total uint64
	for i := range wr.SGL {
		total += uint64(wr.SGL[i].Length)
	}
	if total > uverbs.MaxMessage {
		return uverbs.ErrRange
	}
	return nil
}

// writeRecv writes a receive to its slots, with a tag.
func writeRecv(slots []slotWords, wr *uverbs.RecvWR, tag uint32, sges int) {
	slots[0] = slotWords{receive | uint64(headSlots+sges)<<slotsAt, uint64(tag)}
	slots[1] = slotWords{}
	if len(wr.SGL) < sges {
		slots[headSlots] = slotWords{}
	}
	for i := range wr.SGL {
		slots[headSlots+i].setSGE(&wr.SGL[i])
	}
}

// PostRecv implements driver.QP. The device needs at least one SGE.
func (q *qp) PostRecv(wrs []uverbs.RecvWR) (n int, err error) {
	r := &q.rq
	if q.srq != nil {
		return 0, uverbs.ErrSRQ
	}
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		if r.count-r.completed.Load() >= r.room {
			err = uverbs.ErrQueueFull
			break
		}
		if len(wr.SGL) == 1 && wr.SGL[0].Length <= uverbs.MaxMessage {
			slots := r.slots()
			slots[0] = slotWords{receive | (headSlots+1)<<slotsAt, uint64(r.number)}
			slots[1] = slotWords{}
			slots[2].setSGE(&wr.SGL[0])
		} else if err = checkRecv(wr, r.maxSGE); err == nil {
			writeRecv(r.ring[r.number*r.stride:][:r.stride], wr, r.number, max(len(wr.SGL), 1))
		} else {
			break
		}
		*r.wrID(r.number) = wr.WRID
		r.count++
		if r.number++; r.number == r.size {
			r.number, r.epoch = 0, r.epoch^1
		}
	}
	if n > 0 {
		r.announced.Store(r.count)
		r.bell.ring(ringRQ, r.qpn, r.number, r.epoch, 0)
		if r.flushing.Load() { // the device has no completion for them
			r.cq.wakeUp()
		}
	}
	runtime.KeepAlive(q)
	return n, err
}

// reset empties the queue.
func (r *recvQueue) reset() {
	r.number, r.count, r.last = 0, 0, 0
	r.announced.Store(0)
	r.completed.Store(0)
	r.flushing.Store(false)
}

// outstanding returns how many receives have not completed.
func (r *recvQueue) outstanding() uint32 { return r.announced.Load() - r.completed.Load() }

// release releases the oldest receive, and returns its WRID.
func (r *recvQueue) release() (wrID uint64) {
	wrID = r.wrIDs[r.last]
	if r.last++; r.last == r.size {
		r.last = 0
	}
	r.completed.Add(1)
	return wrID
}
