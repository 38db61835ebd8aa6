package irdma

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A recvQueue is the receive half of a QP. The device reads a receive when its valid bit says so.
type recvQueue struct {
	ring   []quantum
	stride uint32 // quanta of a receive
	shift  uint32 // binary logarithm of the receives in the ring
	room   uint32 // how many can be outstanding, fewer than the ring has
	count  uint32 // of receives so far

	wrIDs     []uint64
	address   uint64        // of the ring
	announced atomic.Uint32 // count
	completed atomic.Uint32 // receives polled so far
	ended     atomic.Bool   // the queue is flushed

	cq     *cq
	maxSGE int
}

// mask is that of indices of receives.
func (r *recvQueue) mask() uint32 { return 1<<r.shift - 1 }

// check returns the error for a receive that cannot be written.
func (r *recvQueue) check(wr *uverbs.RecvWR) error {
	var total uint64
	for i := range wr.SGL {
		total += uint64(wr.SGL[i].Length)
	}
	switch {
	case r.count-r.completed.Load() >= r.room:
		return uverbs.ErrQueueFull
	case len(wr.SGL) > r.maxSGE:
		return uverbs.ErrTooManySGEs
	case total > maxMessage:
		return uverbs.ErrRange
	}
	return nil
}

// write writes a receive.
func (r *recvQueue) write(wr *uverbs.RecvWR) {
	at := r.count & r.mask()
	q := r.ring[at*r.stride:][:r.stride]
	v := validOf(r.count, r.shift)
	if len(wr.SGL) == 0 {
		q[0][0], q[0][1] = 0, v
	}
	header := setFragments(q, 0, wr.SGL, v) | v
	q[0][2] = 0
	r.wrIDs[at] = wr.WRID
	r.count++
	r.announced.Store(r.count)
	mmio.ToDevice()
	mmio.Store64(&q[0][headerWord], header)
}

// PostRecv implements driver.QP.
func (q *qp) PostRecv(wrs []uverbs.RecvWR) (n int, err error) {
	r := &q.rq
	before := r.count
	for ; n < len(wrs); n++ {
		if err = r.check(&wrs[n]); err != nil {
			break
		}
		r.write(&wrs[n])
	}
	if p := q.ctx.bell.posts; p != nil && n > 0 {
		p.Received(r.address)
	}
	if n > 0 && r.missed(before) {
		if failure := q.flush(false, true); err == nil {
			err = failure
		}
	}
	runtime.KeepAlive(q)
	return n, err
}

// missed reports whether receives from one on may have no entry that flushes them: the queue is flushed, and was empty
// before the last of them was written, so that a poll has dropped the entry that flushed it.
func (r *recvQueue) missed(first uint32) bool {
	return r.ended.Load() && int32(r.completed.Load()-first) >= 0
}

// reset empties the queue, as that of sends.
func (r *recvQueue) reset() { r.completed.Store(r.count) }

// outstanding returns how many receives have not completed.
func (r *recvQueue) outstanding() uint32 { return r.announced.Load() - r.completed.Load() }

// release releases the oldest receive, and returns its WRID.
func (r *recvQueue) release() (wrID uint64) {
	done := r.completed.Load()
	wrID = r.wrIDs[done&r.mask()]
	r.completed.Store(done + 1)
	return wrID
}
