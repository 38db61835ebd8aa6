package engine

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// Header types of completions, and hashed fields.
const (
	l3IPv6, l3IPv4               = 1, 2
	l4TCPNoAck, l4UDP            = 1, 2
	l4TCPAck, l4TCPAckData       = 3, 4
	hashIPv4, hashIPv6     uint8 = 1 << 2, 2 << 2
	hashTCP, hashUDP       uint8 = 1 << 6, 2 << 6
	tcpFlagACK                   = 0x10
)

// receive passes a frame to a TIR. own is the transport domain of the sender if
// the frame is from this port.
func (t *TIR) receive(h *HCA, p *parsed, tag uint32, own *uint32) {
	accepts := [2]bool{t.OwnUnicast, t.OwnMulticast}
	if own != nil && *own == t.TransportDomain && !accepts[p.frame[0]&1] {
		return
	}
	number, hash, kind := t.RQ, uint32(0), uint8(0)
	if t.Indirect {
		rqt := h.eth.rqts.objects[t.RQT]
		if rqt == nil || len(rqt.RQs) == 0 {
			return
		}
		hash, kind = t.hash(p)
		number = rqt.RQs[int(hash)%len(rqt.RQs)]
	}
	if q := h.eth.rqs.objects[number]; q != nil {
		q.receive(p, tag, hash, kind)
	}
}

// posted returns the number of WQEs according to the doorbell record.
func (q *RQ) posted() uint16 {
	n, err := q.hca.posted(q.Record, q.head, q.LogSize, Violation{Index: q.head, Text: "RQ " + hex(q.Number) + ": "})
	if err != nil {
		q.fail()
	}
	return n
}

// fail moves the queue to its error state and flushes it.
func (q *RQ) fail() {
	if q.state != QueueReady {
		return
	}
	q.state = QueueError
	q.hca.config.Events.Async(AsyncEvent{Type: EventQPFatal, Queue: QueueRQ, Number: q.Number})
	q.flush()
}

// flush completes posted WQEs with an error, and those posted later.
func (q *RQ) flush() {
	q.flushReceives()
	q.hca.watch.add(q)
}

func (q *RQ) flushReceives() uint16 {
	posted := q.posted()
	for range posted {
		c := q.completion()
		q.head++
		prm.CQEOpcode.Set(c.cqe[:], prm.CQERespErr)
		prm.CQESyndrome.Set(c.cqe[:], uint64(transport.Flushed))
		prm.CQEVendorSyndrome.Set(c.cqe[:], uint64(vendorSyndrome(transport.Flushed, 0)))
		q.cq.push(c, false)
	}
	return posted
}

// completion returns a new completion for the WQE at the head.
func (q *RQ) completion() *completion {
	c := &completion{}
	prm.CQEQPN.Set(c.cqe[:], uint64(q.Number))
	prm.CQEWQECounter.Set(c.cqe[:], uint64(q.head))
	if q.hca.config.CQEVersion > 0 {
		prm.CQEUserIndex.Set(c.cqe[:], uint64(q.UserIndex))
	}
	return c
}

// receive stores a frame in the next WQE's buffers. Without a WQE the frame is
// lost.
func (q *RQ) receive(p *parsed, tag, hash uint32, kind uint8) {
	if q.state != QueueReady || q.posted() == 0 {
		return
	}
	h := q.hca
	raw := make([]byte, 1<<q.LogStride)
	if h.load(&q.Buffer, uint64(q.head)<<q.LogStride&(1<<(q.LogSize+q.LogStride)-1), raw) != nil {
		q.fail()
		return
	}
	w := &receiveWQE{index: q.head}
	w.decode(h, raw, user{pd: q.PD, qpn: AnyQPN, reserved: q.ReservedLKey})
	w.check(h, Violation{Index: w.index, WQE: raw})
	h.traceReceive(trace.Object("rq", "rq", q.Number), w)
	frame := p.frame
	strip := q.StripVLAN && p.vlan && !p.qinq
	if strip {
		frame = append(append([]byte(nil), frame[:12]...), frame[16:]...)
	}
	c := q.completion()
	b := c.cqe[:]
	q.head++
	s := transport.LocalLength
	if uint64(len(frame)) <= w.total {
		if s = scatter(w.pieces, 0, frame); s == transport.PageFault { // these queues have no page faults
			s = transport.LocalProtection
		}
	}
	if s != transport.OK {
		prm.CQEOpcode.Set(b, prm.CQERespErr)
		prm.CQESyndrome.Set(b, uint64(s))
		prm.CQEVendorSyndrome.Set(b, uint64(vendorSyndrome(s, 0)))
		q.cq.push(c, false)
		q.state = QueueError
		h.config.Events.Async(AsyncEvent{Type: EventQPAccess, Queue: QueueRQ, Number: q.Number})
		q.flush()
		return
	}
	prm.CQEOpcode.Set(b, prm.CQERespSend)
	prm.CQEByteCount.Set(b, uint64(len(frame)))
	prm.CQEQPN.Set(b, uint64(tag))
	prm.CQEChecksum.Set(b, uint64(roce.Sum(0, frame[14:])))
	prm.CQERSSHash.Set(b, uint64(hash))
	prm.CQERSSType.Set(b, uint64(kind))
	if strip {
		prm.CQEVLAN.Set(b, 1)
		prm.CQEVLANInfo.Set(b, uint64(p.tag))
	}
	p.describe(b)
	q.cq.push(c, false)
}

// describe stores the frame's properties in a completion.
func (p *parsed) describe(b []byte) {
	l3, l4 := p.checksumsOK()
	prm.CQEL2OK.Set(b, 1)
	prm.CQEL3OK.SetBool(b, l3)
	prm.CQEL4OK.SetBool(b, l4)
	switch {
	case p.ip && p.v6:
		prm.CQEL3HdrType.Set(b, l3IPv6)
	case p.ip:
		prm.CQEL3HdrType.Set(b, l3IPv4)
	}
	switch {
	case p.l4 == 0:
	case p.proto == protoUDP:
		prm.CQEL4HdrType.Set(b, l4UDP)
	case p.frame[p.l4+13]&tcpFlagACK == 0:
		prm.CQEL4HdrType.Set(b, l4TCPNoAck)
	case p.payload < len(p.frame):
		prm.CQEL4HdrType.Set(b, l4TCPAckData)
	default:
		prm.CQEL4HdrType.Set(b, l4TCPAck)
	}
}

// hash returns a packet's hash and the kind of the hash. Packets of other
// protocols than the TIR's have none.
func (t *TIR) hash(p *parsed) (uint32, uint8) {
	if t.Hash == HashNone || !p.ip || p.v6 != t.IPv6 {
		return 0, 0
	}
	kind := hashIPv4
	if p.v6 {
		kind = hashIPv6
	}
	src, dst := p.src, p.dst
	var sport, dport []byte
	if ports := t.Fields & (HashSrcPort | HashDstPort); ports != 0 {
		proto, bits := uint8(protoTCP), hashTCP
		if t.UDP {
			proto, bits = protoUDP, hashUDP
		}
		if p.l4 == 0 || p.proto != proto {
			return 0, 0
		}
		kind |= bits
		sport, dport = p.frame[p.l4:p.l4+2], p.frame[p.l4+2:p.l4+4]
	}
	if t.Symmetric {
		src, dst = ordered(src, dst)
		sport, dport = ordered(sport, dport)
	}
	var in []byte
	for _, x := range []struct {
		field HashFields
		b     []byte
	}{{HashSrcIP, src}, {HashDstIP, dst}, {HashSrcPort, sport}, {HashDstPort, dport}} {
		if t.Fields&x.field != 0 {
			in = append(in, x.b...)
		}
	}
	if t.Hash == HashToeplitz {
		return toeplitz(t.Key[:], in), kind
	}
	x := uint8(0)
	for _, b := range in {
		x ^= b
	}
	return uint32(^x), kind
}

func ordered(a, b []byte) (lower, higher []byte) {
	if string(a) > string(b) {
		return b, a
	}
	return a, b
}

// toeplitz returns the Toeplitz hash of at most 36 bytes with a key of 40.
func toeplitz(key, in []byte) (hash uint32) {
	window := uint64(binary.BigEndian.Uint64(key))
	for i, b := range in {
		for bit := 7; bit >= 0; bit-- {
			if b>>bit&1 == 1 {
				hash ^= uint32(window >> 32)
			}
			window <<= 1
		}
		if i+8 < len(key) {
			window |= uint64(key[i+8])
		}
	}
	return hash
}
