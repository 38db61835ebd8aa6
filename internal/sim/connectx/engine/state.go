package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// endpointStates maps the states to those of the transport.
var endpointStates = map[QPState]transport.State{
	Reset: transport.Reset, Init: transport.Init, RTR: transport.RTR, RTS: transport.RTS,
	SQE: transport.SQE, SQD: transport.SQD, Err: transport.Err,
}

// enter changes the state of the queue pair, possibly to the same one.
func (qp *QP) enter(s QPState) {
	from := qp.state
	switch s {
	case Err:
		qp.fail()
		return
	case Reset:
		qp.stop()
		qp.forget()
		qp.ECE, qp.errored = 0, nil
		qp.sq.reset()
		qp.rq.head, qp.rq.ahead, qp.rq.counted = 0, nil, 0
		qp.lastReported = false
		return
	}
	qp.state = s
	switch {
	case s == RTR && from != s:
		qp.compared, qp.receiving = false, qp.hca.origin()
	case s == RTS && from == RTR:
		qp.sending = qp.hca.origin()
	}
	qp.wasReady = qp.wasReady || s == RTR
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
	qp.hca.dropFaults(qp.Number)
	qp.endpoint.SetState(transport.Err)
	requests, receives := qp.endpoint.TakeBack()
	qp.flushSends(requests)
	qp.abandon(receives, transport.Flushed)
	qp.flushReceives()
	if qp.Source == FromRQ && qp.recvCQ != nil {
		qp.hca.watch.add(qp)
	}
	qp.lastReached()
}

// abandon completes the receive requests of unfinished messages with an error.
func (qp *QP) abandon(receives []*transport.Receive, s transport.Syndrome) {
	for _, rc := range receives {
		qp.completeReceiveError(rc.WQE.(*receiveWQE), s, 0)
	}
}

// failSends changes the state of the queue pair after an error of a send request
// of the given stream: UD and UC queue pairs continue to receive, and a DCI
// continues with other streams.
func (qp *QP) failSends(stream uint16) {
	if qp.Service == ServiceDCI && qp.failStream(stream) {
		return
	}
	if qp.Service != ServiceUC && !qp.Service.datagram() {
		qp.fail()
		return
	}
	qp.state = SQE
	qp.hca.dropFaults(qp.Number)
	qp.endpoint.SetState(transport.SQE)
	requests, _ := qp.endpoint.TakeBack()
	qp.flushSends(requests)
}

// alive reports whether the queue pair exists and is not in Reset.
func (qp *QP) alive() bool { return qp.state != Reset && qp.hca.qps.objects[qp.Number] == qp }

// fatal fails a queue pair with an event, because no completion can report the
// error.
func (qp *QP) fatal() {
	if !qp.alive() || qp.state == Err {
		return
	}
	qp.fail()
	qp.hca.async(EventQPFatal, qp.Number)
}

// lastReached generates, once, the last WQE event of a queue pair with an SRQ
// in its error state.
func (qp *QP) lastReached() {
	if qp.Source == FromSRQ && !qp.lastReported && qp.srq != nil {
		qp.lastReported = true
		qp.hca.async(EventLastWQE, qp.Number)
	}
}

// flushSends flushes the requests taken back and those in the send queue.
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

// flushReceives flushes the receive queue and returns the number of requests.
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
