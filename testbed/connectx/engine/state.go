package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/loop"
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
		qp.sq.reset()
		qp.rq.head = 0
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
	qp.endpoint.SetState(transport.Err)
	requests, receive := qp.endpoint.TakeBack()
	qp.flushSends(requests)
	if receive != nil {
		qp.completeReceiveError(receive.WQE.(*receiveWQE), transport.Flushed, 0)
	}
	qp.flushReceives()
	qp.hca.watch.add(qp)
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

// flushReceives completes what is in the receive queue.
func (qp *QP) flushReceives() {
	if qp.Source != FromRQ || qp.Service == ServiceXRC || qp.recvCQ == nil {
		return
	}
	for n := qp.posted(); n > 0; n-- {
		w := &receiveWQE{index: qp.rq.head}
		qp.rq.head++
		qp.completeReceiveError(w, transport.Flushed, 0)
	}
}

// A watch looks after queue pairs in their error state: receive requests that are
// posted to them are flushed, but nobody rings for them. It looks less and less
// often.
type watch struct {
	hca   *HCA
	qps   map[*QP]bool
	timer *loop.Timer
	delay time.Duration
}

const (
	watchFirst = 100 * time.Microsecond
	watchLast  = 50 * time.Millisecond
)

func (w *watch) add(qp *QP) {
	if qp.Source != FromRQ || qp.recvCQ == nil {
		return
	}
	if w.qps == nil {
		w.qps = make(map[*QP]bool)
	}
	w.qps[qp] = true
	w.timer.Stop()
	w.delay = watchFirst
	w.timer = w.hca.config.Loop.After(w.delay, w.look)
}

func (w *watch) look() {
	order := func(a, b *QP) int { return cmp.Compare(a.Number, b.Number) }
	for _, qp := range slices.SortedFunc(maps.Keys(w.qps), order) {
		if qp.state == Err && qp.alive() {
			qp.flushReceives()
		} else {
			delete(w.qps, qp)
		}
	}
	if len(w.qps) == 0 {
		return
	}
	w.delay = min(2*w.delay, watchLast)
	w.timer = w.hca.config.Loop.After(w.delay, w.look)
}
