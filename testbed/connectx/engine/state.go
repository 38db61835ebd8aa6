package engine

import (
	"github.com/goverbs/goverbs/testbed/connectx/transport"
)

// endpointStates are the states as the transport has them.
var endpointStates = map[QPState]transport.State{
	Reset: transport.Reset, Init: transport.Init, RTR: transport.RTR, RTS: transport.RTS,
	SQE: transport.SQE, SQD: transport.SQD, Err: transport.Err,
}

// enter moves the queue pair to a state, which may be the one it is in.
func (qp *QP) enter(s QPState) {
	from := qp.state
	switch s {
	case Err:
		qp.fail()
		return
	case Reset:
		qp.stop()
		qp.ECE = 0
		qp.sq.reset()
		qp.rq.head, qp.rq.ahead = 0, nil
		qp.lastTold = false
		return
	}
	qp.state = s
	if s == SQD && from != SQD {
		qp.sq.drained = false
	}
	qp.endpoint.Modify(qp.transport())
	if from != s {
		qp.endpoint.SetState(endpointStates[s])
	}
	if s == RTS {
		qp.endpoint.Kick()
	}
}

// fail moves the queue pair to its error state and flushes its queues.
func (qp *QP) fail() {
	if qp.state == Err {
		return
	}
	qp.state = Err
	qp.forgetFaults()
	qp.endpoint.SetState(transport.Err)
	requests, receive := qp.endpoint.TakeBack()
	qp.flushSends(requests)
	if receive != nil {
		qp.completeReceiveError(receive.WQE.(*receiveWQE), transport.Flushed, 0)
	}
	qp.flushReceives()
	if qp.Source == FromRQ && qp.recvCQ != nil {
		qp.hca.watch.add(qp)
	}
	qp.lastReached()
}

// failSends moves the queue pair to where an error of the send queue takes it:
// datagrams and UC go on receiving.
func (qp *QP) failSends() {
	if qp.Service != ServiceUC && !qp.Service.datagram() {
		qp.fail()
		return
	}
	qp.state = SQE
	qp.forgetFaults()
	qp.endpoint.SetState(transport.SQE)
	requests, _ := qp.endpoint.TakeBack()
	qp.flushSends(requests)
}

// alive reports whether the queue pair still exists and does something.
func (qp *QP) alive() bool { return qp.state != Reset && qp.hca.qps.objects[qp.Number] == qp }

// fatal is the end of a queue pair that cannot tell of it by a completion.
func (qp *QP) fatal() {
	if !qp.alive() || qp.state == Err {
		return
	}
	qp.fail()
	qp.hca.async(EventQPFatal, qp.Number)
}

// lastReached tells once that a queue pair in its error state takes nothing more
// from its SRQ.
func (qp *QP) lastReached() {
	if qp.Source == FromSRQ && !qp.lastTold && qp.srq != nil {
		qp.lastTold = true
		qp.hca.async(EventLastWQE, qp.Number)
	}
}

// flushSends completes what was taken back and what is in the send queue.
func (qp *QP) flushSends(requests []*transport.Request) {
	for _, r := range requests {
		w := r.WQE.(*sendWQE)
		qp.sq.done = w.index + w.blocks
		qp.completeSend(w, transport.Flushed)
	}
	for qp.sq.pending() > 0 {
		w := qp.peek()
		if w == nil {
			return
		}
		qp.sq.advance(w)
		qp.sq.done = qp.sq.head
		qp.completeSend(w, transport.Flushed)
	}
}

// flushReceives completes what is in the receive queue; it is how many there were.
func (qp *QP) flushReceives() uint16 {
	if qp.Source != FromRQ || qp.Service == ServiceXRC || qp.recvCQ == nil {
		return 0
	}
	for _, w := range qp.rq.ahead {
		qp.completeReceiveError(w, transport.Flushed, 0)
	}
	qp.rq.ahead = nil
	posted := qp.posted()
	for range posted {
		w := &receiveWQE{index: qp.rq.head}
		qp.rq.head++
		qp.completeReceiveError(w, transport.Flushed, 0)
	}
	return posted
}
