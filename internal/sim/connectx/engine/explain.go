package engine

import (
	"strconv"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

var rightNames = map[Rights]string{LocalRead: "LocalRead", LocalWrite: "LocalWrite", RemoteRead: "RemoteRead",
	RemoteWrite: "RemoteWrite", RemoteAtomic: "RemoteAtomic"}

// String returns the name of one right.
func (r Rights) String() string { return rightNames[r] }

// refusal returns why the user may not access the memory. kind is the kind of the key.
func (s *span) refusal(kind string) (text string, places []Place) {
	name := kind + " " + hex(s.key)
	k := s.hca.mkeys.objects[s.key>>8]
	switch {
	case k == nil || k.Variant != uint8(s.key):
		return name + " names no region", s.hca.fate(s.key)
	case k.Free:
		return name + " names a window that is not bound", s.hca.fate(s.key)
	}
	return s.unfit(name, k), nil
}

// unfit returns why the user may not access the memory of a key that is valid.
func (s *span) unfit(name string, k *MKey) string {
	switch {
	case k.PD != s.as.pd && !s.as.anyPD:
		return name + " is of a PD other than the QP's"
	case k.Rights&s.rights != s.rights:
		return "the region of " + name + " lacks " + (s.rights &^ k.Rights).String()
	case k.QPN != AnyQPN && k.QPN != s.as.qpn:
		return name + " is for QP " + hex(k.QPN) + " only"
	case !k.bounds(s.va, s.n):
		return "bytes [" + hex(s.va) + ", +" + decimal(s.n) + ") are outside the region [" + hex(k.Start) + ", +" +
			decimal(k.Length) + ") of " + name
	}
	return name + " refers to memory that cannot be used"
}

func decimal[T ~uint16 | ~uint32 | ~uint64 | ~int](v T) string {
	return strconv.FormatUint(uint64(v), 10)
}

// refusedPeer reports that the queue pair refuses a peer's access to memory.
func (qp *QP) refusedPeer(why string, places []Place) {
	qp.hca.advise(Violation{Rule: RuleRemoteAccess, QPN: qp.Number, Text: why, Places: places})
}

// explainReceive reports why a receive request fails, if the program is the cause.
func (qp *QP) explainReceive(w *receiveWQE, s transport.Syndrome) {
	v := Violation{QPN: qp.Number, Index: w.index, Origin: w.origin(qp)}
	switch {
	case w.injected || w.unknown:
	case s == transport.LocalLength:
		v.Rule = RuleReceiveShort
		v.Text = "the receive has room for " + decimal(w.total) + " bytes, the message has at least " + decimal(w.needed)
		if qp.Service.datagram() {
			v.Text += ": the first 40 are the network header"
		}
		qp.hca.advise(v)
	case s == transport.LocalProtection:
		v.Rule = RuleLocalAccess
		v.Text, v.Places = cause(w.pieces)
		qp.hca.advise(v)
	}
}

// cause returns why the memory of a request cannot be used.
func cause(pieces []piece) (text string, places []Place) {
	for i := range pieces {
		if p := &pieces[i]; p.inline == nil && !p.span.ok() {
			return p.span.refusal("LKey")
		}
	}
	return "its memory cannot be used", nil
}

// explain reports why a send request fails, if the program is the cause and
// nothing else reports it.
func (w *sendWQE) explain(s transport.Syndrome) {
	if !w.queue.hca.config.Program {
		return
	}
	switch s {
	case transport.LocalProtection:
		for i := range w.pieces {
			if p := &w.pieces[i]; p.inline == nil && w.queue.hca.unknown(p.span.key, p.span.as.reserved) {
				if !w.unknown { // else it was reported before the request began
					w.violate(RuleKey, "local key "+hex(p.span.key)+" does not exist any more while the request is in flight",
						w.queue.hca.fate(p.span.key)...)
				}
				return
			}
		}
		text, places := cause(w.pieces)
		w.violate(RuleLocalAccess, text, places...)
	case transport.LocalQPOp:
		if w.request.Op.Reads() && w.qp.MaxInitiate == 0 {
			w.violate(RuleRequest, "QP "+hex(w.qp.Number)+" permits no READs and atomics: its MaxRdAtomic is 0",
				Place{"it was set", w.qp.sending})
		}
	case transport.LocalLength:
		w.violate(RuleRequest, "the message is too long")
	case transport.BindError:
		if w.why != "" {
			w.violate(RuleRequest, w.why, w.places...)
			return
		}
		w.violate(RuleRequest, "the device refuses to bind or invalidate: the window, the region, their PDs and rights, "+
			"and the bounds must fit")
	}
}

// checkDestination reports a packet that its destination drops or refuses, as
// far as that can be seen before the transport processes it.
func (h *HCA) checkDestination(qp *QP, p *roce.Packet) {
	number := p.DestQPN
	v := Violation{Rule: RuleDestination, QPN: number}
	switch {
	case !h.config.Program:
	case qp == nil && (number >= h.qps.next && h.qps.next > h.qps.first || number < firstQPN):
		v.Text = "the packet is for QP " + hex(number) + ", which does not exist"
		h.advise(v)
	case qp == nil: // it has been destroyed
	case !qp.wasReady:
		v.Text = "the packet is for QP " + hex(number) + " in state " + stateNames[qp.state] +
			": connect the QP before the peer sends"
		h.advise(v)
	case p.Opcode.Service() == roce.DC && !p.Opcode.Response() && qp.target == nil:
		v.Text = "the request of a DCI is for QP " + hex(number) + ", which is not a DCT"
		h.advise(v)
	case !p.Opcode.Response() && qp.paired():
		qp.checkRequest(p)
	case p.Atomic.VA%8 != 0:
		qp.refusedAtomic(p)
	case qp.Service == ServiceUD && p.DETH.QKey != qp.QKey:
		v.Rule = RuleQKey
		v.Text = "the datagram has Q_Key " + hex(p.DETH.QKey) + ", QP " + hex(number) + " has " + hex(qp.QKey)
		h.advise(v)
	}
}

// refusedAtomic reports an atomic whose address is not aligned.
func (qp *QP) refusedAtomic(p *roce.Packet) {
	qp.refusedPeer("the address "+hex(p.Atomic.VA)+" of an atomic is not a multiple of 8", nil)
}

var stateNames = map[QPState]string{Reset: "RESET", Init: "INIT", RTR: "RTR", RTS: "RTS", SQE: "SQE", SQD: "SQD",
	Err: "ERR"}
