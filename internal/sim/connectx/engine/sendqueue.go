package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// block is the size of a basic block.
const block = 64

// A sendQueue is a ring of send WQEs. Counters are of blocks and wrap at 2^16.
type sendQueue struct {
	hca        *HCA
	number     uint32 // as in WQEs and doorbells
	uar        uint32
	buffer     *Buffer
	record     uint64
	base, size uint64 // in the buffer, in bytes
	producer   uint16 // as in the doorbell record at the last doorbell
	head       uint16 // next to be fetched
	done       uint16 // first that is not completed
	drained    bool
	burst      []byte // a WQE written by BlueFlame
	burstIndex uint16
	origins    origins // by block
	later      *loop.Timer
}

func (q *sendQueue) reset() {
	q.later.Stop()
	q.producer, q.head, q.done, q.drained, q.burst = 0, 0, 0, false, nil
}

func (q *sendQueue) blocks() uint16 { return uint16(q.size / block) }

func (q *sendQueue) pending() uint16 { return q.producer - q.head }

// offset returns the offset of a block in the ring.
func (q *sendQueue) offset(index uint16) uint64 { return uint64(index) * block & (q.size - 1) }

// advance removes a WQE from the queue.
func (q *sendQueue) advance(w *sendWQE) { q.head += min(w.blocks, q.pending()) }

// updateProducer reads the producer from the record after a doorbell, or later, with a nil ctrl. It
// reports whether the record could be read.
func (q *sendQueue) updateProducer(ctrl []byte) bool {
	w, err := q.hca.record(q.record + 4)
	if err != nil {
		return false
	}
	q.hca.config.Tracer.Emit("doorbell_record", trace.Object("qp", "qp", q.number), trace.Text("counter", "send"),
		trace.Num("value", w&0xffff))
	posted := uint16(w)
	if q.later.Stop(); ctrl != nil {
		q.check(ctrl, posted)
		posted = q.upTo(ctrl, posted)
	}
	if n := posted - q.head; q.pending() <= n && n <= q.blocks() {
		q.origins.record(q.producer, posted, int(q.blocks()), q.hca.origin())
		q.producer = posted
	}
	return true
}

// upTo returns how far the queue may be executed after a doorbell: not beyond the doorbell's WQE. The record is memory,
// and may be that of a later doorbell, while other stores to the device before that one have not arrived yet: those to
// device memory that a later WQE sends. A read of an adapter never passes them. The rest follows with its doorbell, or
// a while later.
func (q *sendQueue) upTo(ctrl []byte, posted uint16) uint16 {
	end := uint16(prm.CtrlWQEIndex.Get(ctrl)) + ctrlBlocks(ctrl)
	if q.hca.config.WholeBursts || int16(posted-end) <= 0 {
		return posted
	}
	number, to := q.number, q.hca.doorbellQueue(q.number)
	q.later = q.hca.config.Loop.After(nopTimeout, func() {
		if q.hca.doorbellQueue(number) == to && to != nil {
			to.doorbell(nil)
		}
	})
	return end
}

// ctrlBlocks returns the number of blocks of a WQE.
func ctrlBlocks(ctrl []byte) uint16 { return uint16(max(1, (prm.CtrlDS.Get(ctrl)*16+block-1)/block)) }

// peek returns the WQE at the head of the queue without decoding it, or nil if
// the memory cannot be read.
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

// fetch reads the available bytes of the WQE at the head of the queue.
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

// doorbell processes a doorbell of the queue pair.
func (qp *QP) doorbell(ctrl []byte) {
	if !qp.sq.updateProducer(ctrl) {
		qp.fatal()
		return
	}
	qp.postedSends()
	switch qp.state {
	case RTS:
		qp.endpoint.Kick()
	case Err, SQE:
		qp.flushSends(nil)
	}
}

// peek returns the next WQE. If the memory cannot be read, it fails the queue
// pair and returns nil.
func (qp *QP) peek() *sendWQE {
	w := qp.sq.peek()
	if w == nil {
		qp.hca.config.Loop.Post(qp.fatal)
		return nil
	}
	w.qp = qp
	return w
}

// next returns the next request of the queue, or nil.
func (qp *QP) next() *transport.Request {
	if qp.sq.pending() == 0 {
		return nil
	}
	w := qp.peek()
	if w == nil {
		return nil
	}
	if o := qp.sq.origins.of(w.index); o != nil {
		qp.hca.From(o, w.decode)
	} else {
		w.decode()
	}
	if qp.errored[w.request.Stream] {
		w.fail(transport.Flushed)
	}
	w.trace()
	qp.sq.advance(w)
	return &w.request
}

// completeSend writes the completion of a send request, if it has one.
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

// staleSRQN returns the SRQ number in a send request's completion of version 0:
// see Config.StaleSRQN.
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

// completion returns the completion of a send request.
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
	} else if w.returnsData() {
		prm.CQEByteCount.Set(b, uint64(w.request.Length))
		w.intoCQE(c)
	}
	return c
}

// vendorSyndrome returns the vendor syndrome of an error. Its value only has to
// be nonzero.
func vendorSyndrome(s transport.Syndrome, forced uint8) uint8 {
	if forced != 0 {
		return forced
	}
	if s == transport.Flushed {
		return 0xf9
	}
	return 0x80 | uint8(s)
}
