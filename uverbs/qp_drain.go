package uverbs

import (
	"context"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/driver"
)

// Drain moves the QP to ERR and waits until the device has finished with all requests posted to
// it. Then the buffers may be freed and the QP closed. It corresponds to the kernel's
// ib_drain_qp. Stop posting first: Drain also waits for requests that are posted meanwhile.
//
// Drain removes nothing from the CQs, and no goroutine needs to poll meanwhile. On devices that
// release requests by completions (see [QP.SendsOutstanding]) it counts the completions that
// have not been polled, and the CQs must have room for them: each request that is flushed has a
// completion, even if it was not signaled. It does so with the CQs' locks
// held; a CQ with SingleGoroutine must not be polled meanwhile. The completions of the last
// requests may become pollable slightly later: to get all of them, count them. Drain does not
// wait for receives of an SRQ: those that the device had fetched for the QP are in use until
// [EventQPLastWQEReached].
//
// In state RESET Drain does not wait, nor if another call moves the QP there meanwhile. Like
// Close, it waits for an open SendBatch.
//
// On these devices nothing reports that an unsignaled request has succeeded. If it was the last one,
// Drain posts a request, which is flushed too and which Poll does not return. It does so
// only if the send queue and the CQ have room, with all requests that can still complete in this
// CQ. While they have none and the device does not flush the last request, Drain waits for polls, and
// at the end of ctx its error says so.
//
// The errors are [ErrClosed], [ErrDeviceGone], those of the end of ctx, with the QP in ERR,
// and the kernel's error for MODIFY_QP.
func (q *QP) Drain(ctx context.Context) error {
	const op = "drain"
	if q.State() == StateReset {
		return named(op, q.String(), q.alive())
	}
	if err := q.Modify(QPAttr{State: StateErr}, MaskState); err != nil {
		return err
	}
	why := q.finishSends()
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	for pause := firstPause; q.State() == StateErr && q.working(); pause = min(2*pause, longestPause) {
		timer.Reset(pause)
		select {
		case <-timer.C:
			if q.ctx.deviceGone.Load() {
				return named(op, q.String(), ErrDeviceGone)
			}
			if why != "" {
				why = q.finishSends()
			}
		case <-ctx.Done():
			return &Error{Op: op, Object: q.String(), Err: ctxerr.Of(ctx), Detail: why}
		}
	}
	return named(op, q.String(), q.alive())
}

// The pauses between two checks of Drain.
const (
	firstPause   = 20 * time.Microsecond
	longestPause = time.Millisecond
)

// finishSends makes the provider complete requests that would otherwise never be released. If it
// cannot, finishSends returns the reason.
func (q *QP) finishSends() (why string) {
	f, ok := q.impl.(driver.Finisher)
	if !ok || !q.inErr(f.Unfinished) {
		return ""
	}
	cq := q.cfg.SendCQ
	cq.finishing.Lock() // so that no other QP uses the same entry
	defer cq.finishing.Unlock()
	if n := cq.expected(q); n >= cq.Entries() {
		return fmt.Sprintf("the last send is not signaled, and the CQ has no room for another request that reports its end: "+
			"it holds %d completions, and %d requests can still complete in it: poll it, or create it with more Entries",
			cq.Entries(), n)
	}
	if q.inErr(func() bool { return f.Unfinished() && !f.FinishSends() }) {
		return "the send queue is full and its last request is not signaled, so that nothing reports its end: " +
			"signal the last request, or one in each half of the queue"
	}
	return ""
}

// inErr calls f, unless the QP has left state ERR, and returns its result. Nothing is posted meanwhile.
func (q *QP) inErr(f func() bool) bool {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	q.lockBoth()
	defer q.unlockBoth()
	return q.state == StateErr && q.sendGate.Load() != gateClosed && f()
}

// working reports whether the device has requests that it has not completed. It reads the
// outstanding requests first: a poll in between makes their number too large, not too small.
func (q *QP) working() bool {
	sends, recvs := q.SendsOutstanding(), q.RecvsOutstanding()
	if sends+recvs == 0 {
		return false
	}
	overSends, overRecvs := q.cfg.SendCQ.unpolled(q.impl)
	if q.cfg.RecvCQ != nil && q.cfg.RecvCQ != q.cfg.SendCQ {
		_, overRecvs = q.cfg.RecvCQ.unpolled(q.impl)
	}
	return sends > overSends || recvs > overRecvs
}

// sendsInFlight is verbs.SendsInFlight.
func (q *QP) sendsInFlight() int {
	// This is read first: a poll in between makes the result too large, never too small.
	sends := q.SendsOutstanding()
	if sends == 0 || q.cfg.SendCQ == nil {
		return 0
	}
	over, _ := q.cfg.SendCQ.unpolled(q.impl)
	return max(sends-over, 0)
}

// unpolled returns how many requests of each queue of a QP are finished according to
// completions that have not been polled.
func (q *CQ) unpolled(of providerQP) (sends, recvs int) {
	p, ok := q.impl.(driver.Unpolled)
	if !ok {
		return 0, 0
	}
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return 0, 0
	}
	return p.Unpolled(of)
}

func (q *QP) alive() error {
	if q.sendGate.Load() == gateClosed {
		return ErrClosed
	}
	return nil
}
