package engine

import (
	"github.com/goverbs/goverbs/testbed/connectx/prm"
	"github.com/goverbs/goverbs/testbed/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx/transport"
)

// block is the unit in which a send queue advances.
const block = 64

// A sendQueue is a ring of send WQEs. Counters are of blocks and wrap at 2^16.
type sendQueue struct {
	base, size uint64 // in the buffer, in bytes
	producer   uint16 // as the doorbell record had it when a doorbell was rung
	head       uint16 // next to be taken
	done       uint16 // first that is not completed
	drained    bool
	burst      []byte // a WQE that came by BlueFlame
	burstIndex uint16
}

func (q *sendQueue) reset() { *q = sendQueue{base: q.base, size: q.size} }

func (q *sendQueue) blocks() uint16 { return uint16(q.size / block) }

func (q *sendQueue) pending() uint16 { return q.producer - q.head }

// offset is the place of a block in the ring.
func (q *sendQueue) offset(index uint16) uint64 { return uint64(index) * block & (q.size - 1) }

// advance takes a WQE off the queue.
func (q *sendQueue) advance(w *sendWQE) { q.head += min(w.blocks, q.pending()) }

// ring takes note of a doorbell: what the send counter of the record says is there
// to be done.
func (qp *QP) ring(ctrl []byte) {
	h := qp.hca
	w, err := h.record(qp.Record + 4)
	if err != nil {
		qp.fatal()
		return
	}
	h.config.Tracer.Emit("doorbell_record", qp.traced(), trace.Text("counter", "send"), trace.Num("value", w&0xffff))
	qp.checkDoorbell(ctrl, uint16(w))
	if n := uint16(w) - qp.sq.head; n <= qp.sq.blocks() {
		qp.sq.producer = uint16(w)
	}
	switch qp.state {
	case RTS:
		qp.kick()
	case Err, SQE:
		qp.flushSends(nil)
	}
}

func (qp *QP) kick() {
	if qp.endpoint != nil {
		qp.endpoint.Kick()
	}
}

// fetch reads the WQE at the head of the queue, or what of it is there; nil if
// the memory is not.
func (qp *QP) fetch() []byte {
	q := &qp.sq
	if q.burst != nil && q.burstIndex == q.head {
		raw := q.burst
		q.burst = nil
		return raw[:max(16, min(len(raw), int(prm.CtrlDS.Get(raw))*16))]
	}
	var ctrl [16]byte
	if qp.hca.load(&qp.Buffer, q.base+q.offset(q.head), ctrl[:]) != nil {
		return nil
	}
	raw := make([]byte, max(16, prm.CtrlDS.Get(ctrl[:])*16))
	if qp.hca.ring(&qp.Buffer, q.base, q.size, q.offset(q.head), raw) != nil {
		return nil
	}
	return raw
}

// peek looks at the WQE at the head of the queue without decoding it; nil, with
// the queue pair lost, if its memory is gone.
func (qp *QP) peek() *sendWQE {
	raw := qp.fetch()
	if raw == nil {
		qp.sq.head = qp.sq.producer
		qp.hca.config.Loop.Post(qp.fatal)
		return nil
	}
	return newSendWQE(qp.sq.head, raw)
}

// next is the next request of the queue; nil if there is none.
func (qp *QP) next() *transport.Request {
	if qp.sq.pending() == 0 {
		return nil
	}
	w := qp.peek()
	if w == nil {
		return nil
	}
	w.qp = qp
	w.decode()
	qp.traceWQE(w)
	qp.sq.advance(w)
	return &w.request
}

// completeSend writes the completion of a send request, if there is to be one.
func (qp *QP) completeSend(w *sendWQE, s transport.Syndrome) {
	if s == transport.OK && !w.signaled {
		return
	}
	c := completion{}
	b := c.cqe[:]
	prm.CQEOpcode.Set(b, prm.CQEReq)
	prm.CQEQPN.Set(b, uint64(qp.Number))
	prm.CQESendOpcode.Set(b, uint64(w.opcode))
	prm.CQEWQECounter.Set(b, uint64(w.index))
	if qp.hca.config.CQEVersion > 0 {
		prm.CQEUserIndex.Set(b, uint64(qp.UserIndex))
	}
	if s != transport.OK {
		prm.CQEOpcode.Set(b, prm.CQEReqErr)
		prm.CQESyndrome.Set(b, uint64(s))
		prm.CQEVendorSyndrome.Set(b, uint64(vendorSyndrome(s, w.vendor)))
	} else if w.answers() {
		prm.CQEByteCount.Set(b, uint64(w.request.Length))
		w.intoCQE(&c)
	}
	qp.sendCQ.push(&c, false)
}

// vendorSyndrome is a byte that says more about an error, to those who know the
// device: any but zero will do.
func vendorSyndrome(s transport.Syndrome, forced uint8) uint8 {
	if forced != 0 {
		return forced
	}
	if s == transport.Flushed {
		return 0xf9
	}
	return 0x80 | uint8(s)
}
