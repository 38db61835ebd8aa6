package engine

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// SQAttr is the context of a raw Ethernet send queue.
type SQAttr struct {
	CQ           uint32
	UserIndex    uint32
	PD           uint32
	TIS          uint32
	UAR          uint32
	LogSize      uint8 // in blocks of 64 bytes
	Buffer       Buffer
	Record       uint64
	ReservedLKey bool
	RateIndex    uint16 // in the table of rates
}

// An SQ is a raw Ethernet send queue.
type SQ struct {
	SQAttr
	Number uint32

	hca    *HCA
	pd     *domain
	cq     *CQ
	tis    *TIS
	state  QueueState
	ring   sendQueue
	stream *stream     // being segmented: of the WQE before the ring's head
	later  *loop.Timer // the next turn
	due    time.Time   // when the rate permits the next frame
}

// CreateSQ creates a send queue in state Reset.
func (h *HCA) CreateSQ(a SQAttr) (*SQ, error) {
	q := &SQ{SQAttr: a, hca: h}
	var err error
	if q.pd, err = h.ethernetDomain(a.PD); err != nil {
		return nil, err
	}
	if q.cq, err = h.cqs.get(a.CQ); err != nil {
		return nil, err
	}
	if a.TIS == 0 { // the kernel's test of write combining: it sends nothing
		q.tis = &TIS{}
	} else if q.tis, err = h.eth.tiss.get(a.TIS); err != nil {
		return nil, err
	}
	if a.LogSize > h.limits.LogWQSize {
		return nil, failf(ErrLimit, "an SQ of 2^%d blocks", a.LogSize)
	}
	if !a.Buffer.holds(block<<a.LogSize) || a.Record%4 != 0 {
		return nil, failf(ErrParam, "an SQ of 2^%d blocks in %d pages, its record at %#x", a.LogSize, len(a.Buffer.Pages),
			a.Record)
	}
	if err := h.keep(&q.Buffer); err != nil {
		return nil, err
	}
	if q.Number, err = h.eth.sqs.add(q); err != nil {
		h.drop(&q.Buffer)
		return nil, err
	}
	q.ring = sendQueue{hca: h, number: q.Number, uar: a.UAR, buffer: &q.Buffer, record: a.Record, size: block << a.LogSize}
	q.pd.users++
	q.cq.addUsers(1)
	q.tis.users++
	return q, nil
}

// SQ returns the send queue with the given number.
func (h *HCA) SQ(number uint32) (*SQ, error) { return h.eth.sqs.get(number) }

// State returns the queue's state.
func (q *SQ) State() QueueState { return q.state }

// ModifySQ changes the state of a send queue.
func (h *HCA) ModifySQ(number uint32, from, to QueueState) error {
	q, err := h.eth.sqs.get(number)
	if err != nil {
		return err
	}
	h.endBursts(number)
	if err := checkMove(q.state, from, to); err != nil {
		return err
	}
	if q.state = to; to == QueueReset {
		q.stop()
		q.ring.reset()
	}
	q.resume()
	return nil
}

// DestroySQ destroys a send queue.
func (h *HCA) DestroySQ(number uint32) error {
	q, err := h.eth.sqs.get(number)
	if err != nil {
		return err
	}
	h.endBursts(number)
	q.stop()
	q.pd.users--
	q.cq.addUsers(-1)
	q.tis.users--
	h.drop(&q.Buffer)
	h.eth.sqs.remove(number)
	h.config.Tracer.Forget("qp", uint64(number))
	return nil
}

func (q *SQ) queue() *sendQueue { return &q.ring }

// doorbell processes a doorbell of the queue.
func (q *SQ) doorbell(ctrl []byte) {
	if !q.ring.updateProducer(ctrl) {
		q.fail()
		return
	}
	q.run()
}

// fail moves the queue to its error state and flushes it.
func (q *SQ) fail() {
	if q.state != QueueReady {
		return
	}
	q.state = QueueError
	q.hca.config.Events.Async(AsyncEvent{Type: EventQPFatal, Queue: QueueSQ, Number: q.Number})
	q.resume()
}

// framesPerTurn is how many frames a queue sends before others run.
const framesPerTurn = 64

// run sends what was posted.
func (q *SQ) run() {
	if q.later != nil {
		return
	}
	var wait time.Duration
	for range framesPerTurn {
		if wait = q.wait(); wait > 0 {
			break
		}
		if !q.step() {
			return
		}
	}
	q.later = q.hca.config.Loop.After(max(wait, 0), func() {
		q.later = nil
		q.run()
	})
}

// stop ends the work in progress, without completions.
func (q *SQ) stop() {
	q.state, q.stream, q.due = QueueReset, nil, time.Time{}
	q.later.Stop()
	q.later = nil
}

// step sends the next frame, or flushes a WQE. It reports whether there was a
// frame or WQE.
func (q *SQ) step() bool {
	switch {
	case q.state != QueueReady && q.state != QueueError:
		return false
	case q.stream != nil:
		q.sendNext()
		return true
	case q.ring.pending() == 0:
		return false
	}
	w := q.ring.peek()
	if w == nil {
		q.fail()
		return false
	}
	s := transport.Flushed
	if q.state == QueueReady {
		w.checkControl()
		s = q.send(w)
		w.trace()
	}
	q.ring.advance(w)
	if q.stream == nil {
		q.finish(w, s)
	}
	return true
}

// finish completes the WQE before the queue's head.
func (q *SQ) finish(w *sendWQE, s transport.Syndrome) {
	q.ring.done = q.ring.head
	q.complete(w, s)
	if s != transport.OK && q.state == QueueReady {
		q.state = QueueError
		q.hca.config.Events.Async(AsyncEvent{Type: EventQPRequest, Queue: QueueSQ, Number: q.Number})
	}
}

func (q *SQ) complete(w *sendWQE, s transport.Syndrome) {
	if s == transport.OK && !w.signaled {
		return
	}
	index := uint32(0)
	if q.hca.config.CQEVersion > 0 {
		index = q.UserIndex
	}
	q.cq.push(w.completion(q.Number, index, s), false)
}

// send builds the frames of a WQE and sends them.
func (q *SQ) send(w *sendWQE) transport.Syndrome {
	segment := 0
	switch w.opcode {
	case prm.OpcodeNOP:
		return transport.OK
	case prm.OpcodeSend:
	case prm.OpcodeTSO:
		segment = 1
	default:
		w.violate(RuleOpcode, "opcode "+hex(w.opcode)+" is not supported by this queue")
		return transport.LocalQPOp
	}
	if q.TIS == 0 {
		w.violate(RuleOpcode, "a frame of a queue that has no TIS")
		return transport.LocalQPOp
	}
	if len(w.raw) < 32 {
		w.violate(RuleDS, "a frame without its Ethernet segment")
		return transport.LocalQPOp
	}
	e := w.raw[16:]
	frame, rest, ok := ethernetHeader(e)
	if !ok {
		w.violate(RuleInline, "the inline header is longer than its WQE")
		return transport.LocalQPOp
	}
	header := len(frame)
	n := w.memory(rest, user{pd: q.PD, qpn: q.Number, reserved: q.ReservedLKey}, LocalRead)
	if w.bad != transport.OK {
		return w.bad
	}
	if segment == 0 && !q.hca.port.fits(uint64(header)+n) {
		return transport.OK // it would be lost
	}
	if n > maxFrame-uint64(header) {
		return transport.LocalLength
	}
	frame = append(frame, make([]byte, n)...)
	switch s := gather(w.pieces, 0, frame[header:]); s {
	case transport.OK:
	case transport.PageFault: // these queues have no page faults
		return transport.LocalProtection
	default:
		return s
	}
	if prm.EthInsertVLAN.Is(e) && len(frame) >= 12 {
		tag := binary.BigEndian.AppendUint16([]byte{0x81, 0}, uint16(prm.EthInline.Get(e)))
		frame = append(frame[:12:12], append(tag, frame[12:]...)...)
	}
	if segment > 0 {
		return q.cut(w, e, frame, header)
	}
	checksums(frame, prm.EthL3Checksum.Is(e), prm.EthL4Checksum.Is(e))
	return q.transmit(frame)
}

// maxFrame is the maximum length of a frame before segmentation.
const maxFrame = 1 << 18

// ethernetHeader returns the header in an Ethernet segment, and the bytes
// behind it.
func ethernetHeader(e []byte) (header, rest []byte, ok bool) {
	n := int(prm.EthInlineSize.Get(e))
	if prm.EthInsertVLAN.Is(e) {
		n = 0
	}
	start := prm.EthInline.Offset / 8
	size := max(prm.WQEEth.Size, (start+n+15)&^15)
	if size > len(e) {
		return nil, nil, false
	}
	return append([]byte(nil), e[start:start+n]...), e[size:], true
}

// transmit sends a frame to the link, and to the port itself with local
// loopback.
func (q *SQ) transmit(frame []byte) transport.Syndrome {
	const shortest = 14
	if len(frame) < shortest {
		return transport.LocalLength
	}
	h := q.hca
	q.sent(len(frame))
	if !h.port.up || !h.port.fits(uint64(len(frame))) {
		return transport.OK
	}
	countFrame(&h.port.counters.FramesSent, frame)
	if h.eth.local[frame[0]&1] {
		own, domain := append([]byte(nil), frame...), q.tis.TransportDomain
		h.config.Loop.Post(func() { h.steer(own, &domain) })
	}
	if h.port.link != nil {
		h.port.link.Frame(frame)
	}
	h.config.Tracer.Emit("frame", trace.Object("qp", "qp", q.Number), trace.Num("length", len(frame)))
	return transport.OK
}
