package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// peer returns the queue pair at the other end, or nil if it is unknown: see Config.Peer. It may be connected with
// another one.
func (qp *QP) peer() *QP {
	find := qp.hca.config.Peer
	if find == nil || !qp.paired() {
		return nil
	}
	path := qp.endpoint.Config().Path
	h := find(&path)
	if h == nil {
		return nil
	}
	if p := h.qps.objects[qp.RemoteQPN]; p != nil && p.Service == qp.Service {
		return p
	}
	return nil
}

// paired reports whether the queue pair is connected with one other.
func (qp *QP) paired() bool {
	return qp.Service == ServiceRC || qp.Service == ServiceUC || qp.Service == ServiceXRC
}

// compare checks, once for each connection, that the attributes of the two ends fit. A packet of the peer has arrived.
func (qp *QP) compare() {
	if qp.compared || !qp.hca.config.Program {
		return
	}
	p := qp.peer()
	if p == nil || p.RemoteQPN != qp.Number || p.state != RTS || qp.state < RTR {
		return // an end was closed, or packets of an earlier connection arrive
	}
	qp.compared = true
	v := Violation{Rule: RuleConnection, QPN: qp.Number}
	if p.SendPSN != qp.RecvPSN {
		v.Text = "QP " + hex(qp.Number) + " expects the PSN " + hex(qp.RecvPSN) + " (RQPSN), and its peer QP " +
			hex(p.Number) + " begins with " + hex(p.SendPSN) + " (SQPSN)"
		v.Places = []Place{{"RQPSN was set", qp.receiving}, {"SQPSN was set", p.sending}}
		qp.hca.advise(v)
	}
	if p.MTU != qp.MTU && !p.compared {
		v.Text = "QP " + hex(qp.Number) + " has a PathMTU of " + decimal(qp.MTU) + " bytes, and its peer QP " +
			hex(p.Number) + " of " + decimal(p.MTU)
		v.Places = []Place{{"the one was set", qp.receiving}, {"the other was set", p.receiving}}
		qp.hca.advise(v)
	}
}

// checkReads reports that more READs and atomics may be outstanding than the peer permits, with the post that has
// exceeded the number. before is the number before the post.
func (qp *QP) checkReads(before int) {
	reads := min(qp.account.reads, qp.MaxInitiate)
	if reads <= before {
		return
	}
	p := qp.peer()
	if p == nil || p.RemoteQPN != qp.Number || p.state < RTR || p.MaxRespond == 0 || before > p.MaxRespond ||
		reads <= p.MaxRespond {
		return
	}
	if qp.sendCQ.poll(); min(qp.account.reads, qp.MaxInitiate) <= p.MaxRespond {
		return
	}
	qp.hca.advise(Violation{Rule: RuleConnection, QPN: qp.Number, Text: decimal(reads) +
		" READs and atomics of QP " + hex(qp.Number) + " may be outstanding (MaxRdAtomic is " + decimal(qp.MaxInitiate) +
		"), and its peer QP " + hex(p.Number) + " permits " + decimal(p.MaxRespond) + " (MaxDestRdAtomic)",
		Places: []Place{{"MaxRdAtomic was set", qp.sending}, {"MaxDestRdAtomic was set", p.receiving}}})
}

// checkRequest reports a request packet of the peer that the queue pair refuses whatever its state, and compares the
// two ends with the first one.
func (qp *QP) checkRequest(p *roce.Packet) {
	qp.compare()
	switch {
	case p.Atomic.VA%8 != 0:
		qp.refusedAtomic(p)
	case qp.MaxRespond == 0 && !p.Opcode.Carries(): // a READ or an atomic
		qp.hca.advise(Violation{Rule: RuleConnection, QPN: qp.Number, Text: "QP " + hex(qp.Number) +
			" permits no READs and atomics: its MaxDestRdAtomic is 0", Places: []Place{{"it was set", qp.receiving}}})
	}
}

// failedPeer is called when a send request fails. The message waits for a receive request no longer.
func (qp *QP) failedPeer(why transport.Syndrome) {
	if !qp.hca.config.Program {
		return
	}
	p := qp.peer()
	switch {
	case p == nil || p.RemoteQPN != qp.Number:
	case why == transport.RNRRetry:
		p.reportLate(false)
	default:
		p.late = nil // the cause is reported
	}
}
