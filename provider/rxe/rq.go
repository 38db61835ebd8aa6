package rxe

import (
	"errors"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// recvWQE is struct rxe_recv_wqe, in words like sendWQE. Scatter/gather elements
// follow.
type recvWQE struct {
	wrID     uint64
	reserved uint64
	length   uint64 // dma.length, dma.resid
	sgeCount uint64 // dma.cur_sge, dma.num_sge
	offset   uint64 // dma.sge_offset, reserved
}

// A recvQueue is the receive half of a QP.
type recvQueue struct {
	producer
	maxSGE int
}

func newRecvQueue(r ring, maxSGE int) recvQueue {
	if r.mem == nil {
		return recvQueue{}
	}
	return recvQueue{
		producer: newProducer(r),
		maxSGE:   min(maxSGE, (r.size()-recvHeader)/sgeSize),
	}
}

// encode writes wr to element i.
func (q *recvQueue) encode(i uint32, wr *uverbs.RecvWR) error {
	if len(wr.SGL) > q.maxSGE {
		return uverbs.ErrTooManySGEs
	}
	w := q.recvWQE(i)
	sgl := wr.SGL
	sges := w.sges(len(sgl))
	var total uint64
	for k := range sgl {
		sges[k] = sgl[k]
		total += uint64(sgl[k].Length)
	}
	if total > uverbs.MaxMessage {
		return uverbs.ErrRange
	}
	w.wrID = wr.WRID
	w.reserved = 0
	w.length = total | total<<32
	w.sgeCount = uint64(len(sges)) << 32
	w.offset = 0
	return nil
}

// post writes wrs to the ring and publishes those before the first invalid one.
func (q *recvQueue) post(wrs []uverbs.RecvWR) (int, error) {
	if q.mem == nil {
		return 0, uverbs.ErrSRQ
	}
	cur := q.cur
	n, err := 0, error(nil)
	for ; n < len(wrs); n++ {
		if q.full(cur) {
			err = uverbs.ErrQueueFull
			break
		}
		if err = q.encode(cur, &wrs[n]); err != nil {
			break
		}
		cur = q.next(cur)
	}
	if cur != q.cur {
		q.publish(cur)
	}
	return n, err
}

// PostRecv implements driver.QP. It makes no system call: the kernel reads
// the ring when a message arrives.
func (q *qp) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	n, err := q.rq.post(wrs)
	runtime.KeepAlive(q)
	return n, err
}

// FlushRecv implements driver.Flusher. In state ERR the kernel flushes the
// ring when it next processes the QP's receives. A move from ERR to ERR makes it do
// so at once.
func (q *qp) FlushRecv() error {
	err := q.sq.bell.fail()
	switch {
	case err == nil:
		return nil
	case q.retired.Load() || errors.Is(err, os.ErrClosed):
		return uverbs.ErrClosed
	}
	return provider.KernelError("flush receives", "", err)
}
