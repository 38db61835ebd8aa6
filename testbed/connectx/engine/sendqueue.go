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
	hca        *HCA
	number     uint32 // as WQEs and doorbells name it
	uar        uint32
	buffer     *Buffer
	record     uint64
	base, size uint64 // in the buffer, in bytes
	producer   uint16 // as the doorbell record had it when a doorbell was rung
	head       uint16 // next to be taken
	done       uint16 // first that is not completed
	drained    bool
	burst      []byte // a WQE that came by BlueFlame
	burstIndex uint16
}

func (q *sendQueue) reset() {
	q.producer, q.head, q.done, q.drained, q.burst = 0, 0, 0, false, nil
}

func (q *sendQueue) blocks() uint16 { return uint16(q.size / block) }

func (q *sendQueue) pending() uint16 { return q.producer - q.head }

// offset is the place of a block in the ring.
func (q *sendQueue) offset(index uint16) uint64 { return uint64(index) * block & (q.size - 1) }

// advance takes a WQE off the queue.
func (q *sendQueue) advance(w *sendWQE) { q.head += min(w.blocks, q.pending()) }

// note takes note of a doorbell: what the send counter of the record says is there
// to be done. It reports whether the record could be read.
func (q *sendQueue) note(ctrl []byte) bool {
	w, err := q.hca.record(q.record + 4)
	if err != nil {
		return false
	}
	q.hca.config.Tracer.Emit("doorbell_record", trace.Object("qp", "qp", q.number), trace.Text("counter", "send"), trace.Num("value", w&0xffff))
	q.check(ctrl, uint16(w))
	if n := uint16(w) - q.head; n <= q.blocks() {
		q.producer = uint16(w)
	}
	return true
}

// peek looks at the WQE at the head of the queue without decoding it; nil if the
// memory is gone.
func (q *sendQueue) peek() *sendWQE {
	raw := q.fetch()
	if raw == nil {
		q.head = q.producer
		return nil
	}
	w := newSendWQE(q.head, raw)
	w.queue = q
	return w
}

// fetch reads the WQE at the head of the queue, or what of it is there.
func (q *sendQueue) fetch() []byte {
	if q.burst != nil && q.burstIndex == q.head {
		raw := q.burst
		q.burst = nil
		return raw[:max(16, min(len(raw), int(prm.CtrlDS.Get(raw))*16))]
	}
	var ctrl [16]byte
	if q.hca.load(q.buffer, q.base+q.offset(q.head), ctrl[:]) != nil {
		return nil
	}
	raw := make([]byte, max(16, prm.CtrlDS.Get(ctrl[:])*16))
	if q.hca.ring(q.buffer, q.base, q.size, q.offset(q.head), raw) != nil {
		return nil
	}
	return raw
}

func (qp *QP) queue() *sendQueue { return &qp.sq }

// rung is told of a doorbell.
func (qp *QP) rung(ctrl []byte) {
	if !qp.sq.note(ctrl) {
		qp.fatal()
		return
	}
	switch qp.state {
	case RTS:
		qp.endpoint.Kick()
	case Err, SQE:
		qp.flushSends(nil)
	}
}

// peek looks at the next WQE; nil, with the queue pair lost, if its memory is gone.
func (qp *QP) peek() *sendWQE {
	w := qp.sq.peek()
	if w == nil {
		qp.hca.config.Loop.Post(qp.fatal)
		return nil
	}
	w.qp = qp
	return w
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
	w.decode()
	w.trace()
	qp.sq.advance(w)
	return &w.request
}

// completeSend writes the completion of a send request, if there is to be one.
func (qp *QP) completeSend(w *sendWQE, s transport.Syndrome) {
	if s == transport.OK && !w.signaled {
		return
	}
	index := qp.UserIndex
	if qp.hca.config.CQEVersion == 0 {
		index = qp.staleSRQN()
	}
	qp.sendCQ.push(w.completion(qp.Number, index, s), false)
}

// staleSRQN returns what a send request's completion of version 0 has in the place
// of an SRQ's number: see Config.StaleSRQN.
func (qp *QP) staleSRQN() uint32 {
	h := qp.hca
	switch {
	case !h.config.StaleSRQN:
		return 0
	case qp.srq != nil:
		return qp.srq.Number
	}
	lowest := uint32(0)
	for n := range h.srqs.objects {
		if lowest == 0 || n < lowest {
			lowest = n
		}
	}
	return lowest
}

// completion makes the completion of a send request.
func (w *sendWQE) completion(number, index uint32, s transport.Syndrome) *completion {
	c := &completion{}
	b := c.cqe[:]
	prm.CQEOpcode.Set(b, prm.CQEReq)
	prm.CQEQPN.Set(b, uint64(number))
	prm.CQESendOpcode.Set(b, uint64(w.opcode))
	prm.CQEWQECounter.Set(b, uint64(w.index))
	prm.CQEUserIndex.Set(b, uint64(index))
	if s != transport.OK {
		prm.CQEOpcode.Set(b, prm.CQEReqErr)
		prm.CQESyndrome.Set(b, uint64(s))
		prm.CQEVendorSyndrome.Set(b, uint64(vendorSyndrome(s, w.vendor)))
	} else if w.answers() {
		prm.CQEByteCount.Set(b, uint64(w.request.Length))
		w.intoCQE(c)
	}
	return c
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
