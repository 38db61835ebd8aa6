package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A receiveQueue is a ring of receive WQEs at the start of the buffer.
type receiveQueue struct {
	size    uint64 // in bytes
	head    uint16 // next to be fetched
	ahead   lot    // WQEs fetched and not used by a message yet
	counted uint16 // the counter when receives were last posted
	origins origins
}

// A receiveWQE is a receive request.
type receiveWQE struct {
	index    uint16
	srq      *SRQ
	pieces   []piece
	total    uint64
	unknown  bool   // a key does not exist
	key      uint32 // that does not exist
	zero     bool   // a segment is of length 0
	held     []byte // a small message for the completion
	begun    bool   // a part of the message has been stored
	injected bool   // the error is on purpose
	needed   uint64 // bytes of the message that did not fit
	extents  []*extent
}

// posted returns the number of receive WQEs according to the record.
func (qp *QP) posted() uint16 {
	n, err := qp.hca.posted(qp.Record, qp.rq.head, qp.LogRQSize, Violation{QPN: qp.Number, Index: qp.rq.head})
	if err != nil {
		qp.hca.config.Loop.Post(qp.fatal)
	}
	return n
}

// A lot is a number of receive WQEs fetched together: Config.ShuffleRQ.
type lot []*receiveWQE

// take returns the last WQE of the lot. If the lot is empty, it first fetches a new
// one of at most size WQEs. It returns nil if there are none.
func (l *lot) take(size int, fetch func() *receiveWQE) *receiveWQE {
	if len(*l) == 0 {
		for range max(1, size) {
			w := fetch()
			if w == nil {
				break
			}
			*l = append(*l, w)
		}
	}
	n := len(*l) - 1
	if n < 0 {
		return nil
	}
	w := (*l)[n]
	*l = (*l)[:n]
	return w
}

// take returns the receive WQE for the next message, or nil.
func (qp *QP) take() *receiveWQE { return qp.rq.ahead.take(qp.hca.config.ShuffleRQ, qp.fetch) }

// fetch takes the WQE at the head of the queue pair's own ring, or returns nil if
// there is none.
func (qp *QP) fetch() *receiveWQE {
	if qp.posted() == 0 {
		return nil
	}
	off := uint64(qp.rq.head) << qp.LogRQStride & (qp.rq.size - 1)
	raw := make([]byte, 1<<qp.LogRQStride)
	if qp.hca.load(&qp.Buffer, off, raw) != nil {
		qp.hca.config.Loop.Post(qp.fatal)
		return nil
	}
	w := &receiveWQE{index: qp.rq.head}
	w.decode(qp.hca, raw, qp.user())
	qp.hca.traceReceive(qp.traced(), w)
	w.check(qp.hca, Violation{Origin: w.origin(qp), QPN: qp.Number, Index: w.index, Offset: off, WQE: raw})
	qp.rq.head++
	return w
}

// decode decodes the data segments up to the end mark.
func (w *receiveWQE) decode(h *HCA, raw []byte, as user) {
	for ; len(raw) >= 16; raw = raw[16:] {
		p := decodePiece(h, raw, as, LocalWrite)
		if p.n == 0 && p.span.key == EndOfList {
			break
		}
		if p.n == 0 {
			w.zero = true
			p.n = 1 << 31
			p.span.n = p.n
		}
		if !w.unknown && h.unknown(p.span.key, as.reserved) {
			w.unknown, w.key = true, p.span.key
		}
		w.pieces = append(w.pieces, p)
		w.total += p.n
	}
}

// check reports violations in the segments.
func (w *receiveWQE) check(h *HCA, v Violation) {
	if w.unknown {
		v.Rule, v.Text, v.Places = RuleKey, "local key "+hex(w.key)+" does not exist", h.fate(w.key)
		h.violate(v)
	}
	if w.zero {
		v.Rule, v.Text = RuleZeroLength, "a data segment of length 0"
		h.violate(v)
	}
}

// Receive takes a receive request for a message.
func (q *queues) Receive(srq uint32) (*transport.Receive, transport.Syndrome) {
	qp := q.qp
	var w *receiveWQE
	switch {
	case qp.Service == ServiceXRC:
		s := qp.xrcSRQ(srq)
		if s == nil {
			return nil, transport.RemoteInvalidRequest
		}
		w = s.take()
	case qp.Source == FromSRQ:
		w = qp.srq.take()
	case qp.Source == FromRQ:
		w = qp.take()
	default:
		return nil, transport.RemoteInvalidRequest
	}
	if w == nil {
		qp.noReceive(srq)
		return nil, transport.OK
	}
	qp.late = nil
	return &transport.Receive{WQE: w}, transport.OK
}

// Posted returns the number of receive requests for messages.
func (q *queues) Posted(srq uint32) int {
	qp := q.qp
	s := qp.srq
	switch {
	case qp.Service == ServiceXRC:
		s = qp.xrcSRQ(srq)
	case qp.Source == FromRQ:
		return len(qp.rq.ahead) + int(qp.posted())
	}
	if s == nil {
		return 0
	}
	return len(s.ahead) + int(s.posted())
}

// xrcSRQ returns a shared receive queue of the queue pair's domain, or nil.
func (qp *QP) xrcSRQ(number uint32) *SRQ {
	s := qp.hca.srqs.objects[number]
	if s == nil || !s.XRC || s.XRCD != qp.XRCD {
		return nil
	}
	return s
}

// Deliver stores a part of a message.
func (q *queues) Deliver(rc *transport.Receive, off uint32, p []byte) transport.Syndrome {
	w := rc.WQE.(*receiveWQE)
	end := uint64(off) + uint64(len(p))
	if end > w.total {
		w.needed = end
		return transport.LocalLength
	}
	if q.qp.Service.datagram() && q.qp.hca.config.Program {
		w.fillHeader(off, p)
	}
	// A message of several packets starts with one that is longer than the
	// limit.
	held := end <= uint64(q.qp.scatterResponse(w))
	if q.qp.hca.config.Program {
		w.extend(q.qp, uint64(off), p, held)
	}
	if held {
		w.held = make([]byte, 64)
		copy(w.held, p)
		return transport.OK
	}
	s := scatter(w.pieces, uint64(off), p)
	if s == transport.PageFault {
		return q.faultReceive(w, off, uint32(len(p)))
	}
	w.begun = w.begun || s == transport.OK
	return s
}

// unusedHeader replaces the unused 20 bytes in front of the IPv4 header of a datagram, and the network header of a
// packet that has none: a program that takes them for the message finds the cause there. Their contents are undefined.
const unusedHeader = "payload at offset 40"

// fillHeader fills the unused bytes in front of a datagram. p arrives at off.
func (w *receiveWQE) fillHeader(off uint32, p []byte) {
	switch {
	case off == 0 && p[0] == 0: // neither of IPv6 nor a GRH
		copy(p, unusedHeader)
	case off > 0 && !w.begun:
		_ = scatter(w.pieces, 0, []byte(unusedHeader+unusedHeader)) // if that fails, so does the payload
	}
}

// scatterResponse returns the maximum size of a message in the completion.
func (qp *QP) scatterResponse(w *receiveWQE) int {
	if qp.Service != ServiceRC && qp.Service != ServiceDCT || qp.recvCQ == nil {
		return 0
	}
	return scatterLimit(qp.ScatterResponse, qp.recvCQ)
}

var responses = map[transport.Op]uint64{
	transport.Send: prm.CQERespSend, transport.SendImm: prm.CQERespSendImm,
	transport.SendInval: prm.CQERespSendInv, transport.WriteImm: prm.CQERespWrite,
}

// Arrived completes a receive request.
func (q *queues) Arrived(rc *transport.Receive, m transport.Message) {
	qp, w := q.qp, rc.WQE.(*receiveWQE)
	if m.Syndrome != transport.OK {
		qp.completeReceiveError(w, m.Syndrome, 0)
		return
	}
	if s, vendor := qp.hca.injected(qp); s != transport.OK {
		w.injected = true
		qp.completeReceiveError(w, s, vendor)
		qp.hca.config.Loop.Post(func() {
			if qp.alive() && qp.target == nil {
				qp.fail()
			}
		})
		return
	}
	c, cq := qp.receiveCompletion(w)
	b := c.cqe[:]
	prm.CQEOpcode.Set(b, responses[m.Op])
	prm.CQEByteCount.Set(b, uint64(m.Length))
	prm.CQEImm.Set(b, uint64(m.Imm))
	prm.CQERemoteQPN.Set(b, uint64(qp.RemoteQPN))
	if p := m.Packet; p != nil && qp.Service.datagram() {
		prm.CQERemoteQPN.Set(b, uint64(p.DETH.SrcQPN))
		if m.Op != transport.SendImm {
			prm.CQEImm.Set(b, uint64(p.PKey))
		}
		qp.describe(b, &p.Route)
	}
	if p := m.Packet; p != nil && qp.target != nil {
		qp.describeInitiator(b, p)
	}
	if w.held != nil && m.Op != transport.WriteImm { // it replaces other fields
		c.inline(w.held, int(m.Length))
	}
	cq.push(c, m.Solicited)
}

// describe stores the source of a datagram in a completion.
func (qp *QP) describe(b []byte, r *roce.Route) {
	if r.Version == roce.InfiniBand {
		prm.CQESLID.Set(b, uint64(r.SLID))
		prm.CQESL.Set(b, uint64(r.SL))
		prm.CQEGRH.SetBool(b, r.GRH)
		return
	}
	prm.CQEGRH.Set(b, 1)
	if r.Tagged {
		prm.CQEVLAN.Set(b, 1)
		prm.CQEVLANInfo.Set(b, uint64(r.VLAN))
	}
	switch {
	case r.IPv4():
		prm.CQEL3Type.Set(b, prm.CQEL3IPv4)
	case r.Version == roce.V2:
		prm.CQEL3Type.Set(b, prm.CQEL3IPv6)
	}
}

// receiveCompletion returns a new completion for a receive request, and its CQ.
// For XRC that is the SRQ's CQ.
func (qp *QP) receiveCompletion(w *receiveWQE) (*completion, *CQ) {
	c, cq := &completion{origin: w.origin(qp), extents: w.extents}, qp.recvCQ
	b := c.cqe[:]
	prm.CQEQPN.Set(b, uint64(qp.Number))
	prm.CQEWQECounter.Set(b, uint64(w.index))
	index := qp.UserIndex
	if w.srq != nil && qp.Service == ServiceXRC {
		cq, index = w.srq.cq, w.srq.UserIndex
	}
	if qp.hca.config.CQEVersion == 0 {
		index = 0
		if w.srq != nil {
			index = w.srq.Number
		}
	}
	prm.CQEUserIndex.Set(b, uint64(index))
	return c, cq
}

func (qp *QP) completeReceiveError(w *receiveWQE, s transport.Syndrome, vendor uint8) {
	qp.explainReceive(w, s)
	c, cq := qp.receiveCompletion(w)
	prm.CQEOpcode.Set(c.cqe[:], prm.CQERespErr)
	prm.CQESyndrome.Set(c.cqe[:], uint64(s))
	prm.CQEVendorSyndrome.Set(c.cqe[:], uint64(vendorSyndrome(s, vendor)))
	if cq != nil {
		cq.push(c, false)
	}
}
