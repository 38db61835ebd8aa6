package siw

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
	sq        queue
	maxSGE    int
	maxInline int
	always    uint64 // flags of every send
	reads     bool   // the connection allows READs
	ring      func() error
	batch     batch

	_          [64]byte
	rq         queue
	maxRecvSGE int

	owner   provider.QPOwner
	retired atomic.Bool
	bell    provider.Bell
}

// configure sets what the kernel has granted.
func (q *qp) configure(c uverbs.QPCap, signalAll bool, qpn uint32) {
	q.maxSGE, q.maxRecvSGE = min(c.MaxSendSGE, uapi.SIW_MAX_SGE), min(c.MaxRecvSGE, uapi.SIW_MAX_SGE)
	q.maxInline = min(c.MaxInline, maxInline)
	q.reads = true
	if signalAll {
		q.always = uapi.SIW_WQE_SIGNALLED
	}
	q.sq.qpn, q.rq.qpn = qpn, qpn
}

// SetRdAtomic implements driver.RdAtomic. The kernel neither sends nor skips a READ that the connection does not allow.
func (q *qp) SetRdAtomic(n uint8) { q.reads = n > 0 }

// Entered implements driver.Stateful.
func (q *qp) Entered(state uint8) {
	if uverbs.QPState(state) == uverbs.StateErr {
		q.sq.end()
		q.rq.end()
	}
}

// Reset implements driver.QP. The kernel accepts the command without effect: a QP of iWARP is for one connection.
func (q *qp) Reset() error {
	return unsupported("reset QP", "a QP of an iWARP device serves one connection: create another one")
}

// SendsOutstanding implements driver.QP. The kernel copies requests before it sends them.
func (q *qp) SendsOutstanding() int { return q.sq.outstanding() }

// RecvsOutstanding implements driver.QP.
func (q *qp) RecvsOutstanding() int { return q.rq.outstanding() }

// Retire implements driver.QP.
func (q *qp) Retire(inUse bool) error {
	q.retired.Store(true)
	q.sq.cq.drop(&q.sq)
	q.rq.cq.drop(&q.rq)
	err := q.sq.mem.Release(inUse)
	if q.rq.there() {
		err = provider.Join(err, q.rq.mem.Release(inUse))
	}
	return err
}

// bellError returns the error of a post whose doorbell was refused.
func (q *qp) bellError(err error) error {
	if q.retired.Load() || errors.Is(err, os.ErrClosed) {
		return uverbs.ErrClosed
	}
	e := &uverbs.Error{Op: "ring the doorbell", Errno: unix.EIO}
	errors.As(err, &e.Errno)
	e.Detail = "the requests are in the send queue and go out with the next doorbell"
	if e.Errno == unix.ENOTCONN {
		e.Kind = uverbs.ErrState
		e.Detail = "the requests are in the send queue, but the connection is not established or ends: they are flushed " +
			"when the QP moves to ERR"
	}
	if q.owner == nil { // in tests of the rings alone
		return e
	}
	return q.owner.DoorbellError(e)
}
