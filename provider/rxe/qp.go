package rxe

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// qp implements driver.QP. Two goroutines may use the two halves
// concurrently, so they do not share a cache line.
type qp struct {
	sq sendQueue
	_  [64]byte
	rq recvQueue

	retired atomic.Bool

	// What sq and rq refer to, so that a QP is one allocation.
	bell  bell
	rings [2]provider.Mapping
	offer uapi.RxeCreateQpResp
}

// use sets the rings. rq is the zero ring if the QP uses an SRQ.
func (q *qp) use(sq, rq ring, c uverbs.QPCap, bell doorbell) {
	q.sq, q.rq = newSendQueue(sq, c, bell), newRecvQueue(rq, c.MaxRecvSGE)
	q.Begin()
}

// Reset implements driver.QP.
//
// When a QP moves to RESET, the kernel removes all elements from both rings, by
// moving its consumer index to ours, and zeroes them. The indices continue from
// there. Only our copy of the kernel's index is outdated.
//
// Some kernels, including 6.12 and 7.2 but not 6.1, record the position at which
// sending continues before they empty the send queue: rxe_sender runs the requester
// before the completer, and rxe_qp_reset calls it once. If requests were waiting,
// the kernel then treats the zeroed elements as WRITEs without data, and their
// acknowledgements as those of later requests: a SEND completes with success but
// never arrives. Another move from RESET to RESET finds the queue empty and records
// the right position.
func (q *qp) Reset() error {
	err := q.sq.bell.reset()
	q.sq.refresh()
	if q.sq.mtu != nil {
		q.sq.maxMessage = 0 // the QP may get another port
	}
	q.Begin()
	if q.rq.mem != nil {
		q.rq.refresh()
	}
	if err != nil {
		return provider.KernelError("reset QP", "", err)
	}
	return nil
}

// SendsOutstanding implements driver.QP.
func (q *qp) SendsOutstanding() int { return q.sq.used() }

// RecvsOutstanding implements driver.QP.
func (q *qp) RecvsOutstanding() int {
	if q.rq.mem == nil {
		return 0
	}
	return q.rq.used()
}

// Retire implements driver.QP.
func (q *qp) Retire(inUse bool) error {
	q.retired.Store(true)
	return provider.Join(q.sq.retire(inUse), q.rq.retire(inUse))
}

// bellError returns the error of a post whose doorbell was refused.
func (q *qp) bellError(err error) error {
	if q.retired.Load() || errors.Is(err, os.ErrClosed) {
		return uverbs.ErrClosed
	}
	e := &uverbs.Error{Op: "ring the doorbell", Errno: unix.EIO}
	errors.As(err, &e.Errno)
	switch e.Errno {
	case unix.EINVAL:
		e.Kind = uverbs.ErrState
		e.Detail = "the requests are in the send queue, but the QP is not in RTS: they go out with the next doorbell " +
			"that the kernel accepts"
	default:
		e.Detail = "the requests are in the send queue and go out with the next doorbell"
	}
	if q.sq.owner == nil { // in tests of the rings alone
		return e
	}
	return q.sq.owner.DoorbellError(e)
}
