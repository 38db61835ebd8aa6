package uverbs

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/race"
)

// A QP is a queue pair. Its methods may be called from any number of goroutines,
// unless it was created with SingleGoroutine. Then each of the two queues belongs
// to one goroutine at a time, and only the owner of both may call Modify and Close.
type QP struct {
	object
	impl   providerQP
	pd     *PD   // nil if the QP belongs to an XRCD
	xrcd   *XRCD // of an XRCRecv QP
	cfg    QPConfig
	cap    QPCap
	single bool
	psn    uint32 // what Endpoint reports

	sq       sync.Mutex // serialises calls of the provider's send half
	poster   providerQP // handles PostSend: impl, or duringBatch in a single-goroutine QP with an open batch
	sendGate gate
	rq       sync.Mutex // serialises calls of the provider's receive half
	recvGate gate

	gidMu sync.Mutex
	gid   *GIDEntry // cached by localGID

	port atomic.Uint32 // set by Modify

	windows windowSet // type 2 windows that may be bound on this QP

	stateMu sync.Mutex // serialises Modify
	state   QPState
	groups  []mcastGroup // that the QP is attached to

	rss *driver.RSSConfig // of a QP that distributes packets over WQs, or nil
}

// An mcastGroup is a multicast group that a QP is attached to. The LID is used on
// InfiniBand only.
type mcastGroup struct {
	gid GID
	lid uint16
}

// Context returns the context of q.
func (q *QP) Context() *Context { return q.ctx }

// PD returns the PD of q, or nil for an XRCRecv QP.
func (q *QP) PD() *PD { return q.pd }

// SRQ returns the SRQ of q, or nil if it has none.
func (q *QP) SRQ() *SRQ { return q.cfg.SRQ }

// QPN returns the QP's number. Peers use it to address the QP. A DCT has its number from state
// RTR on, and 0 before.
func (q *QP) QPN() uint32 { return atomic.LoadUint32(&q.number) }

// Cap returns the actual sizes of the queues. They are at least the requested
// sizes.
func (q *QP) Cap() QPCap { return q.cap }

// SendCQ returns the CQ for completions of sends, or nil for an XRCRecv QP.
func (q *QP) SendCQ() *CQ { return q.cfg.SendCQ }

// RecvCQ returns the CQ for completions of receives, or nil for an XRC QP.
func (q *QP) RecvCQ() *CQ { return q.cfg.RecvCQ }

// PostSend posts work requests to the send queue, in order: ibv_post_send(3). If it
// returns an error, n is the index of the request that was refused. The requests
// before it have been posted; the refused request and those after it have not.
//
// PostSend does not allocate, and literals at the call site stay on the stack. In a
// loop, do not store the []SGE in a slice of requests that outlives it.
//
// If the kernel refuses the doorbell, all of wrs have been posted: n is their
// number, and they are sent with the next doorbell.
//
// The errors are [ErrQueueFull], [ErrRange], [ErrTooManySGEs], [ErrInlineTooLong],
// [ErrAtomicSize] and [ErrRdAtomic]; [ErrOpcode], [ErrQPType], [ErrOpNotSupported]
// and [ErrMalformed], which all match ErrOpcode; for memory windows [ErrNoMW] and
// [ErrForeignMW]; on UD QPs and DCIs [ErrNoAH] and [ErrForeignAH]; on UD QPs
// [ErrTooLong]; on DCIs [ErrNoStreams]; on raw packet QPs [ErrFrameHeader] and [ErrTSO]; [ErrState],
// [ErrNoQueue], [ErrClosed] and [ErrDeviceGone]; [ErrBusy] on a single-goroutine QP with an open batch; and the
// kernel's error for the doorbell.
func (q *QP) PostSend(wrs ...SendWR) (n int, err error) {
	if race.Enabled {
		releasePost(q.cfg.SendCQ)
	}
	if !q.single {
		q.sq.Lock()
	}
	if g := q.sendGate.Load(); g != gateOpen {
		err = gateErrors[g]
	} else if n, err = q.poster.PostSend(noescape.Slice(wrs)); err != nil {
		err = q.orClosed(&q.sendGate, err)
	}
	if !q.single {
		q.sq.Unlock()
	}
	return n, err
}

// PostRecv posts work requests to the receive queue, in order: ibv_post_recv(3).
// Errors and n are as for [QP.PostSend].
func (q *QP) PostRecv(wrs ...RecvWR) (n int, err error) {
	if race.Enabled {
		releasePost(q.cfg.RecvCQ)
	}
	if !q.single {
		q.rq.Lock()
	}
	if g := q.recvGate.Load(); g != gateOpen {
		n, err = q.postRecvGated(g, wrs)
	} else if n, err = q.impl.PostRecv(noescape.Slice(wrs)); err != nil {
		err = q.orClosed(&q.recvGate, err)
	}
	if !q.single {
		q.rq.Unlock()
	}
	return n, err
}

// postRecvGated handles PostRecv if the gate is not open.
//
//go:noinline
func (q *QP) postRecvGated(g uint32, wrs []RecvWR) (n int, err error) {
	if g > gateFlush {
		return 0, gateErrors[g]
	}
	if n, err = q.impl.PostRecv(noescape.Slice(wrs)); err != nil {
		return n, q.orClosed(&q.recvGate, err)
	}
	return n, q.flushRecv()
}

// SendsOutstanding returns how many requests occupy the send queue. rxe releases a
// request when it completes. Other devices release it when its completion, or that
// of a later request, has been polled. SendsOutstanding returns 0 for a closed QP.
func (q *QP) SendsOutstanding() (n int) {
	if !q.single {
		q.sq.Lock()
	}
	n = q.sendsOutstanding()
	if !q.single {
		q.sq.Unlock()
	}
	return n
}

// sendsOutstanding is SendsOutstanding for a caller that holds the lock, as is recvsOutstanding.
func (q *QP) sendsOutstanding() int {
	if q.sendGate.Load() == gateClosed {
		return 0
	}
	return q.impl.SendsOutstanding()
}

// RecvsOutstanding returns how many requests occupy the receive queue, like
// [QP.SendsOutstanding]. It returns 0 for a QP with an SRQ.
func (q *QP) RecvsOutstanding() (n int) {
	if !q.single {
		q.rq.Lock()
	}
	n = q.recvsOutstanding()
	if !q.single {
		q.rq.Unlock()
	}
	return n
}

func (q *QP) recvsOutstanding() int {
	if g := q.recvGate.Load(); g == gateClosed || g == gateSRQ || g == gateNone {
		return 0
	}
	return q.impl.RecvsOutstanding()
}

func (q *QP) deviceGone() {
	q.sendGate.closeGone()
	q.recvGate.closeGone()
}

// flushRecv flushes receives that were posted in state ERR, if the provider has to
// do that.
func (q *QP) flushRecv() error {
	f, ok := q.impl.(driver.Flusher)
	if !ok {
		return nil
	}
	if err := f.FlushRecv(); err != nil {
		return q.orClosed(&q.recvGate, q.ctx.wrap("flush receives", q.String(), err, ""))
	}
	return nil
}

// orClosed returns err, or ErrClosed if a single-goroutine queue was closed during
// the post. It must stay inlinable: a call here would make successful posts slower.
func (q *QP) orClosed(gate *gate, err error) error {
	if gate.Load() == gateClosed {
		return ErrClosed
	}
	return err
}

// doorbellError returns the error of a post to q whose doorbell is a system call that the
// kernel refused. It is err, and [ErrDeviceGone] if the device is gone.
func (q *QP) doorbellError(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Kind == nil && q.ctx.isDeviceGone(e) {
		e.Kind, e.Detail = ErrDeviceGone, ""
	}
	return err
}

func (q *QP) lockBoth() {
	if !q.single {
		q.sq.Lock()
		q.rq.Lock()
	}
}

func (q *QP) unlockBoth() {
	if !q.single {
		q.rq.Unlock()
		q.sq.Unlock()
	}
}

// purgeCQs drops the unpolled completions of q. The caller may hold locks of the
// QP: the lock of a CQ is acquired after them, never before.
func (q *QP) purgeCQs() {
	if q.cfg.RecvCQ != nil {
		q.cfg.RecvCQ.purge(q.impl)
	}
	if q.cfg.SendCQ != nil && q.cfg.SendCQ != q.cfg.RecvCQ {
		q.cfg.SendCQ.purge(q.impl)
	}
}
