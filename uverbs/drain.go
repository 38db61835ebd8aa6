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
// It takes nothing out of the CQs, and needs no room in them. The completions
// of the last requests may be a moment behind: who wants every one counts them.
// Where the device gives requests back as their completions are polled, see
// [QP.SendsOutstanding], somebody has to poll. Receives of an SRQ are not the
// QP's to drain: those that the device had taken for it are in its hands until
// [EventQPLastWQEReached].
//
// In state RESET there is nothing to wait for, nor when another call moves the
// QP there meanwhile. As Close, it waits for an open SendBatch.
//
// The errors: [ErrClosed]; the cause of the end of ctx, with the QP in ERR; what
// the kernel said to MODIFY_QP.
func (q *QP) Drain(ctx context.Context) error {
	if q.State() == StateReset {
		return q.alive()
	}
	if err := q.Modify(QPAttr{State: StateErr}, MaskState); err != nil {
		return err
	}
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	for pause := firstPause; q.State() == StateErr && q.SendsOutstanding()+q.RecvsOutstanding() > 0; pause = min(2*pause, longestPause) {
		timer.Reset(pause)
		select {
		case <-timer.C:
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

func (q *QP) alive() error {
	if q.sendGate.Load() == gateClosed {
		return ErrClosed
	}
	return nil
}
