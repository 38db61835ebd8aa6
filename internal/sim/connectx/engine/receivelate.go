package engine

// noReceive records that a message finds no receive request, which breaks RuleReceiveLate if the message is lost.
// srq is the shared receive queue that an XRC message names. Members of a multicast group may ignore datagrams: those
// that only send get their own.
func (qp *QP) noReceive(srq uint32) {
	if qp.hca.toGroup || !qp.hca.config.Program {
		return
	}
	v := &Violation{Rule: RuleReceiveLate, Origin: qp.hca.origin(), QPN: qp.Number, SRQN: srq}
	if qp.srq != nil {
		v.SRQN = qp.srq.Number
	}
	where := "QP " + hex(qp.Number)
	if v.SRQN != 0 {
		where = "SRQ " + hex(v.SRQN)
	}
	v.Text = "the message finds no receive in " + where + " and is lost: post receives before the peer sends"
	if qp.Service == ServiceUC || qp.Service.datagram() {
		qp.hca.advise(*v)
	} else if qp.late == nil {
		qp.late = v
	}
}

// reportLate reports that a message which has waited for a receive request is lost: the peer has no retries left, or
// the connection ends: closing.
func (qp *QP) reportLate(closing bool) {
	if v := qp.late; v != nil {
		qp.late, v.Closing = nil, closing
		qp.hca.advise(*v)
	}
}

// End reports what queues that still exist have lost. No program uses the device any more.
func (h *HCA) End() {
	for _, qp := range h.qps.all() {
		qp.reportLate(true)
	}
	for _, cq := range h.cqs.all() {
		cq.reportLost()
	}
}
