package uverbs

import (
	"errors"

	"github.com/goverbs/goverbs/internal/uapi"
)

// Close destroys the QP: ibv_destroy_qp(3). Requests in its queues are dropped
// without completion. Type 2 memory windows that were ever bound on the QP are
// closed too. Close is idempotent. A goroutine that calls Close between StartSend
// and Submit deadlocks. Close returns [ErrBusy] while an ether.Flow leads to the QP:
// close the flow first. If the kernel refuses, Close returns its error and the QP
// stays open.
func (q *QP) Close() error { return q.close() }

// destroy destroys the kernel's QP. It waits for Modify, Query and posts that are
// under way, because the kernel may reuse the handle for the next object.
func (q *QP) destroy() error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	q.lockBoth()
	defer q.unlockBoth()
	send, recv := q.sendGate.Load(), q.recvGate.Load()
	q.closeGates()
	err := errors.Join(q.detachAll(), q.windows.close())
	if err == nil {
		err = q.destroyKernel()
	}
	if err != nil { // the QP stays open
		q.sendGate.set(q.ctx, send)
		q.recvGate.set(q.ctx, recv)
	}
	return err
}

func (q *QP) destroyKernel() error {
	return q.destroyHandleReply(uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY, uapi.UVERBS_ATTR_DESTROY_QP_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_QP_RESP, destroyQPLen)
}

func (q *QP) closeGates() {
	q.sendGate.Store(gateClosed)
	q.recvGate.Store(gateClosed)
}

func (q *QP) retire() error {
	q.lockBoth()
	defer q.unlockBoth()
	q.closeGates()
	ending := q.ctx.ending.Load()
	if !ending { // otherwise its CQs are closed too, and their owners may be polling
		q.purgeCQs()
	}
	return q.impl.Retire(ending || q.single || q.cfg.SendCQ.unlocked() || q.cfg.RecvCQ.unlocked())
}
