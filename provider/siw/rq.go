package siw

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// post writes receives and publishes those before the first invalid one.
func (q *queue) post(wrs []uverbs.RecvWR, maxSGE int) (n int, err error) {
	next := q.cur
	for ; n < len(wrs); n++ {
		if err = q.encodeRecv(next, &wrs[n], maxSGE); err != nil {
			break
		}
		next++
	}
	if next != q.cur {
		q.publish(next)
	}
	return n, err
}

// encodeRecv writes a receive to element i.
func (q *queue) encodeRecv(i uint32, wr *uverbs.RecvWR, maxSGE int) error {
	switch {
	case len(wr.SGL) > maxSGE:
		return uverbs.ErrTooManySGEs
	case q.full(i):
		return uverbs.ErrQueueFull
	}
	e := q.element(i)
	sges, total := setSGEs(e, 2, wr.SGL)
	if total > uverbs.MaxMessage {
		return uverbs.ErrRange
	}
	e[0] = wr.WRID
	q.pending[i&q.mask] = valid | uint64(sges)<<countAt
	return nil
}

// PostRecv implements driver.QP. It makes no system call: the kernel reads
// the ring when a message arrives.
func (q *qp) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	if !q.rq.there() {
		return 0, uverbs.ErrSRQ
	}
	n, err := q.rq.post(wrs, q.maxRecvSGE)
	runtime.KeepAlive(q)
	return n, err
}

// srq implements driver.SRQ.
type srq struct {
	queue
	maxSGE int
}

// PostRecv implements driver.SRQ.
func (s *srq) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	n, err := s.post(wrs, s.maxSGE)
	runtime.KeepAlive(s)
	return n, err
}

// Modify implements driver.SRQ.
func (s *srq) Modify(maxWR int, modify driver.Command) error {
	if maxWR > 0 {
		return unsupported("modify", "SRQs of siw cannot be resized: create another one")
	}
	_, err := modify(nil, nil)
	return err
}

// Retire implements driver.SRQ.
func (s *srq) Retire() error { return s.mem.Retire() }
