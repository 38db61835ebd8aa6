package fakeirdma

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
	rings  *ringMemory
	cookie uint64 // what completions name it by
	send   *cq
	recv   *cq
	sq     sendRing
	rq     recvRing
	ended  bool // it is in ERR, or was

	// The codes with which the first request of a queue is flushed.
	sendCode, recvCode uint64
	// asked says which queues a program has asked to flush, for Record.
	asked [2]bool
}

// newQP returns the QP of a command.
func (k *kernel) newQP(c ioctl.Call, u *uapi.IrdmaCreateQpReq, m *ringMemory, sends, recvs ringSize) *qp {
	q := &qp{QP: k.NewQP(c, k.dev.Next("QP")), dev: k.dev, kernel: k, rings: m, cookie: u.UserComplCtx,
		send: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)],
		recv: k.cqs[call.Handle(c, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)]}
	q.sq = sendRing{ring{memory: k.Memory, addr: m.start, size: sends.quanta, stride: 1}, nil, 0}
	q.rq = recvRing{ring{memory: k.Memory, addr: m.start + uint64(m.SqPages)*pageSize, size: recvs.quanta >> recvs.shift,
		stride: 1 << recvs.shift}, 0, 0}
	q.Connect(q, func() { q.enter(transport.Err) })
	return q
}

// enter changes the state of the transport. There is no way back from ERR.
func (q *qp) enter(s transport.State) {
	switch {
	case q.ended:
	case s == transport.Err || s == transport.SQE || s == transport.Reset:
		q.ended = true
		q.Endpoint.SetState(transport.Err)
		sends, recvs := q.Endpoint.TakeBack()
		q.sq.busy, q.rq.busy = q.sq.busy+len(sends), q.rq.busy+len(recvs)
		if !q.dev.Recording() {
			q.flush(true, true)
		}
	default:
		q.Endpoint.SetState(s)
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

// Codes of requests that are flushed: enum irdma_flush_opcode.
const (
	flushGeneral     = 1
	flushProtection  = 2
	flushRemAccess   = 3
	flushQPOp        = 4
	flushRemOp       = 5
	flushLength      = 6
	flushFatal       = 7
	flushRetry       = 8
	flushBind        = 9
	flushRemInvalid  = 10
	flushRNRRetry    = 11
	flushUnspecified = 0
)

// flushCodes has the code of an error.
var flushCodes = map[transport.Syndrome]uint64{transport.LocalLength: flushLength, transport.LocalQPOp: flushQPOp,
	transport.LocalProtection: flushProtection, transport.BindError: flushBind, transport.BadResponse: flushFatal,
	transport.LocalAccess: flushProtection, transport.RemoteInvalidRequest: flushRemInvalid,
	transport.RemoteAccess: flushRemAccess, transport.RemoteOp: flushRemOp, transport.TransportRetry: flushRetry,
	transport.RNRRetry: flushRNRRetry, transport.Flushed: flushGeneral}

// flush writes the entries that flush queues, if they are not empty.
func (q *qp) flush(sends, recvs bool) {
	if n := q.sq.drain(); sends && n > 0 {
		q.send.complete(q.flushEntry(&q.sendCode, flagSend), nil)
	}
	if n := q.rq.drain(); recvs && n > 0 {
		q.recv.complete(q.flushEntry(&q.recvCode, 0), nil)
	}
}

// flushEntry returns the entry that flushes a queue. The code is used once.
func (q *qp) flushEntry(code *uint64, flags uint64) *entry {
	e := q.entry(flags | flagError | majorFlush<<majorAt | max(*code, flushGeneral))
	*code = flushUnspecified
	return e
}

// entry returns an entry of the QP.
func (q *qp) entry(flags uint64) *entry { return &entry{0, q.cookie, uint64(q.Number) << 32, flags} }
