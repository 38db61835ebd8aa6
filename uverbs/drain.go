package uverbs

import (
	"context"
	"time"
)

// Drain moves the QP to ERR and waits until the device has given back all that
// was posted to it: its buffers may be freed then, and the QP be closed. What
// ib_drain_qp is in the kernel. Stop posting first: it waits for what others
// post meanwhile too.
//
// It takes nothing out of the CQs, and nobody has to poll meanwhile: where
// requests are given back by their completions, see [QP.SendsOutstanding], it
// looks at those that wait to be polled, for which the CQs must have room. It
// does so under the CQs' locks; one with SingleGoroutine must not be polled
// meanwhile. The completions of the last requests may be a moment behind: who
// wants every one counts them. Receives of an SRQ are not the QP's to drain:
// those that the device had taken for it are in its hands until
// [EventQPLastWQEReached].
//
// In state RESET there is nothing to wait for, nor when another call moves the
// QP there meanwhile. As Close, it waits for an open SendBatch.
//
// A send queue that is full of requests none of which asked for a completion has
// nothing more to say, as it has for posting: the wait ends with ctx then.
//
// The errors: [ErrClosed]; [ErrDeviceGone]; the cause of the end of ctx, with the
// QP in ERR; what the kernel said to MODIFY_QP.
func (q *QP) Drain(ctx context.Context) error {
	if q.State() == StateReset {
		return q.alive()
	}
	if err := q.Modify(QPAttr{State: StateErr}, MaskState); err != nil {
		return err
	}
	q.finishSends()
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	for pause := firstPause; q.State() == StateErr && q.working(); pause = min(2*pause, longestPause) {
		timer.Reset(pause)
		select {
		case <-timer.C:
			if q.ctx.gone.Load() {
				return ErrDeviceGone
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return q.alive()
}

// How long Drain waits before it looks again.
const (
	firstPause   = 20 * time.Microsecond
	longestPause = time.Millisecond
)

// finishSends has the provider see to requests that would never be given back.
func (q *QP) finishSends() {
	f, ok := q.impl.(ProviderFinisher)
	if !ok {
		return
	}
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	q.lockBoth()
	defer q.unlockBoth()
	if q.state == StateErr && q.sendGate.Load() != gateClosed {
		f.FinishSends()
	}
}

// working tells whether the device has requests that it has not completed. What
// is outstanding is asked for first: a poll in between makes that too many.
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

// unpolled is how many requests of each queue of a QP are over by completions
// that have not been polled.
func (q *CQ) unpolled(of ProviderQP) (sends, recvs int) {
	p, ok := q.impl.(ProviderUnpolled)
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
