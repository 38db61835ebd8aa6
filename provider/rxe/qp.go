package rxe

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// qp implements uverbs.ProviderQP. The two halves may be used by two
// goroutines, so they do not share a cache line.
type qp struct {
	sq sendQueue
	_  [64]byte
	rq recvQueue

	retired atomic.Bool
}

// newQP makes a QP of mapped rings. rq is the zero ring when an SRQ serves the
// QP.
func newQP(sq, rq ring, c uverbs.QPCap, bell doorbell) *qp {
	q := &qp{sq: newSendQueue(sq, c, bell), rq: newRecvQueue(rq, c.MaxRecvSGE)}
	q.Begin()
	return q
}

// Reset implements uverbs.ProviderQP.
//
// On the way to RESET the kernel takes all elements out of both rings, by
// moving its consumer index to ours, and zeroes them. The indices go on from
// where they are; only what was known of the kernel's is out of date.
//
// Some kernels, 6.12 and 7.2 among them and 6.1 not, note where to go on
// sending before they empty the send queue: rxe_sender runs the requester
// before the completer, and rxe_qp_reset calls it once. When requests were
// waiting, the kernel then takes the zeroed elements for WRITEs of nothing, and
// their acknowledgements for those of later requests: a SEND completes with
// success and never arrives. Another move from RESET to RESET finds the queue
// empty and notes the right place.
func (q *qp) Reset() error {
	err := q.sq.bell.reset()
	q.sq.refresh()
	if q.sq.mtu != nil {
		q.sq.maxMessage = 0 // the port may be another one
	}
	q.Begin()
	if q.rq.mem != nil {
		q.rq.refresh()
	}
	if err != nil {
		return kernelError("reset QP", "", err)
	}
	return nil
}

// SendsOutstanding implements uverbs.ProviderQP.
func (q *qp) SendsOutstanding() int { return q.sq.used() }

// RecvsOutstanding implements uverbs.ProviderQP.
func (q *qp) RecvsOutstanding() int {
	if q.rq.mem == nil {
		return 0
	}
	return q.rq.used()
}

// Retire implements uverbs.ProviderQP.
func (q *qp) Retire() error {
	q.retired.Store(true)
	return errors.Join(q.sq.retire(), q.rq.retire())
}

// bellError says what a refused doorbell means.
func (q *qp) bellError(err error) error {
	if q.retired.Load() || errors.Is(err, os.ErrClosed) {
		return uverbs.ErrClosed
	}
	e := &uverbs.Error{Op: "ring the doorbell", Errno: unix.EIO}
	errors.As(err, &e.Errno)
	switch e.Errno {
	case unix.EINVAL:
		e.Kind = uverbs.ErrState
		e.Detail = "the requests are in the send queue, but the QP is not in RTS: they go out with the next doorbell that the kernel takes"
	case unix.EIO:
		e.Kind = uverbs.ErrDeviceGone
	default:
		e.Detail = "the requests are in the send queue and go out with the next doorbell"
	}
	return e
}
