package efa

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A recvQueue is the receive half of a QP.
type recvQueue struct {
	requests
	ring   []recvWQE
	mem    *provider.Mapping
	db     register
	cur    uint32 // descriptors written so far
	mask   uint32
	maxSGE int
	ended  bool // posts are refused
}

// reset empties the queue.
func (r *recvQueue) reset(generation uint32) {
	r.requests.reset(generation)
	r.cur = 0
}

// check returns the error for a receive that cannot be written.
func (r *recvQueue) check(wr *uverbs.RecvWR) error {
	switch {
	case r.full(0):
		return uverbs.ErrQueueFull
	case len(wr.SGL) > r.maxSGE:
		return uverbs.ErrTooManySGEs
	case len(wr.SGL) == 0: // it would have no descriptor
		return uverbs.ErrMalformed
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

// write writes a receive to the ring. Each number has room for maxSGE descriptors.
func (r *recvQueue) write(wr *uverbs.RecvWR) {
	head := uint64(r.id(0, wr.WRID)) | recvFirst
	r.take()
	final := len(wr.SGL) - 1
	for i := range wr.SGL {
		s := &wr.SGL[i]
		w := head | uint64(min(s.Length, maxRecvSGE))<<recvLengthAt | uint64(s.LKey&keyMask)<<32
		if i == final {
			w |= recvLast
		}
		r.ring[r.cur&r.mask] = recvWQE{s.Addr, w}
		r.cur++
		head = 0
	}
}

// post writes any receive.
//
//go:noinline
func (r *recvQueue) post(wr *uverbs.RecvWR) error {
	err := r.check(wr)
	if err == nil {
		r.write(wr)
	}
	return err
}

// PostRecv implements driver.QP. The loop writes receives with one SGE, without a call of a function.
//
//go:nosplit
func (q *qp) PostRecv(wrs []uverbs.RecvWR) (n int, err error) {
	r := &q.rq
	if r.ended {
		return 0, errEnded
	}
	before := r.cur
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		freed := r.polled()
		if len(wr.SGL) != 1 || wr.SGL[0].Length > uverbs.MaxMessage || r.next == freed {
			if err = r.post(wr); err != nil {
				break
			}
			continue
		}
		sge, number := &wr.SGL[0], *r.number(r.next)
		*r.note(number) = note{wr.WRID, true}
		*r.at(r.cur) = recvWQE{sge.Addr, uint64(uint16(r.base.Load())) | uint64(number) | recvFirst | recvLast |
			uint64(min(sge.Length, maxRecvSGE))<<recvLengthAt | uint64(sge.LKey&keyMask)<<32}
		r.next++
		r.cur++
	}
	if r.cur != before {
		r.publish()
		mmio.ToDevice()
		if mmio.Store32(r.db.at, r.cur&0xffff); r.db.bells != nil {
			r.db.simulate(r.cur & 0xffff)
		}
	}
	runtime.KeepAlive(q)
	return n, err
}
