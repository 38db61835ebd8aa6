package fakebnxt

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A qp is a queue pair.
type qp struct {
	fakedev.QP
	dev    *Device
	kernel *kernel
	cookie uint64 // what completions name it by
	send   *cq
	recv   *cq
	srq    *srq
	sq     sendRing
	rq     recvRing
}

// newQP returns the QP of a command.
func (k *kernel) newQP(c ioctl.Call, u *uapi.BnxtReQpReq) *qp {
	q := &qp{QP: k.NewQP(c, k.dev.Next("QP")), dev: k.dev, kernel: k, cookie: u.QpHandle,
		send: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)],
		recv: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)],
		srq:  k.srqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)]}
	q.sq.init(k, u, &q.Cap, q.UD)
	slots := uint32(headSlots + maxSGE)
	if k.variable {
		slots = headSlots + q.Cap.MaxRecvSge
	}
	q.rq = recvRing{memory: k.Memory, addr: u.Qprva, depth: k.depth(q.Cap.MaxRecvWr+1, maxWR+1), slots: slots}
	q.rq.bytes = uint64(q.rq.depth) * uint64(slots) * slotSize
	q.Connect(q, func() { q.enter(transport.Err) })
	return q
}

// enter changes the state of the transport.
func (q *qp) enter(s transport.State) {
	before := q.Endpoint.State()
	q.Endpoint.SetState(s)
	switch {
	case s == transport.Reset:
		q.Endpoint.TakeBack()
		q.sq.reset()
		q.rq.reset()
	case s == transport.RTS && before == transport.RTR:
		q.sq.psn = q.Attr.SendPSN
	case s == transport.Err && before != transport.Err:
		q.Endpoint.TakeBack()
		q.terminate()
	}
}

// terminate writes the completions that report that the QP is in ERR. The program completes what it has posted.
func (q *qp) terminate() {
	e := newEntry(typeTerm, 0)
	e.put64(handleAt, q.cookie)
	e.put16(consumerAt, uint16(q.sq.done))
	e.put16(recvConsAt, uint16(q.rq.next))
	q.send.complete(e, false)
	if q.recv != q.send {
		q.recv.complete(e, false)
	}
}

// modifyQP changes the device's QP.
func (k *kernel) modifyQP(r *uapi.IbUverbsModifyQp, from, to uint8) {
	q := k.qps[r.QpHandle]
	q.Set(r)
	if from != to {
		q.enter(fakedev.StateOf(to))
	}
}
