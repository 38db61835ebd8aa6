package engine

import (
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// An account lists the requests of a queue pair that may still complete, as far as
// the host can tell from the completions that it has polled: see Config.Program.
type account struct {
	sends    []send
	counted  uint16 // block after the last of sends
	reads    int    // READs and atomics among sends
	receives int
}

// A send is a posted send request.
type send struct {
	index    uint16
	signaled bool
	reads    bool // it is a READ or an atomic
}

// A pending is a completion that was not polled.
type pending struct {
	qp    *QP // nil if it is not accounted
	send  bool
	index uint16

	extents []*extent // of a message
}

// postedSends accounts the requests of a doorbell.
func (qp *QP) postedSends() {
	if !qp.hca.config.Program {
		return
	}
	a, q := &qp.account, &qp.sq
	before, reads := qp.sendCQ.demand, a.reads
	for a.counted != q.producer {
		var ctrl [16]byte
		n := q.producer - a.counted
		if n > q.blocks() || q.hca.load(q.buffer, q.base+q.offset(a.counted), ctrl[:]) != nil {
			a.counted = q.producer
			return
		}
		w := newSendWQE(a.counted, ctrl[:])
		one := send{a.counted, w.signaled, shapes[w.opcode].op.Reads()}
		if one.reads {
			a.reads++
		}
		a.sends = append(a.sends, one)
		qp.sendCQ.demand++
		a.counted += min(w.blocks, n)
	}
	qp.sendCQ.checkDemand(before)
	qp.checkReads(reads)
}

// postedReceives accounts n receive requests.
func (qp *QP) postedReceives(n int) {
	if !qp.hca.config.Program || qp.recvCQ == nil {
		return
	}
	before := qp.recvCQ.demand
	qp.account.receives += n
	qp.recvCQ.demand += n
	qp.recvCQ.checkDemand(before)
}

// capacity is the number of completions that the host may rely on: the kernel
// reports one less than the size.
func (cq *CQ) capacity() int { return max(1, int(cq.size())-1) }

// checkDemand reports that the CQ may not have room for the completions of all
// posted requests. before is the demand before the last post: only the post with
// which the demand exceeds the capacity is reported.
func (cq *CQ) checkDemand(before int) {
	if cq.NoCheck || cq.demand <= cq.capacity() || cq.state == CQFailed {
		return
	}
	added := cq.demand - before
	if cq.poll(); cq.demand <= cq.capacity() || cq.demand-added > cq.capacity() {
		return
	}
	cq.hca.advise(Violation{Rule: RuleCQCapacity, CQN: cq.Number, Text: decimal(cq.demand) +
		" requests are posted whose completions have not been polled (unsignaled ones complete, too, if their QP fails), " +
		"and CQ " + hex(cq.Number) + " has " + decimal(cq.capacity()) + " entries: create it with more"})
}

// overran reports that a completion has no room.
func (cq *CQ) overran(c *completion) {
	v := Violation{Rule: RuleCQOverrun, Origin: c.origin, CQN: cq.Number,
		Offset: uint64(cq.producer&(cq.size()-1)) * cq.stride(), Text: "a completion has no room: the host has not polled"}
	if cq.hca.config.Program {
		v.Text = "CQ " + hex(cq.Number) + " has " + decimal(cq.size()) + " completions that have not been polled, and no " +
			"room for another: poll, or create it with more entries"
		v.Places = []Place{{"it was created", cq.created}}
	}
	cq.hca.violate(v)
}

// note records a completion that was written.
func (cq *CQ) note(c *completion) {
	if !cq.hca.config.Program {
		return
	}
	cqe := c.cqe[:]
	op := prm.CQEOpcode.Get(cqe)
	p := pending{qp: cq.hca.qps.objects[uint32(prm.CQEQPN.Get(cqe))], send: op == prm.CQEReq || op == prm.CQEReqErr,
		index: uint16(prm.CQEWQECounter.Get(cqe)), extents: c.extents}
	cq.hca.arrived.add(c.extents)
	cq.unpolled = append(cq.unpolled, p)
}

// reap accounts n completions that were polled.
func (cq *CQ) reap(n int) {
	if n > 0 {
		cq.lost = nil
	}
	n = min(n, len(cq.unpolled))
	for _, p := range cq.unpolled[:n] {
		cq.hca.arrived.polled(p.extents)
		switch {
		case p.qp == nil:
		case p.send:
			a := &p.qp.account
			if i := slices.IndexFunc(a.sends, func(s send) bool { return s.index == p.index }); i >= 0 {
				cq.demand -= i + 1
				for _, s := range a.sends[:i+1] {
					if s.reads {
						a.reads--
					}
				}
				a.sends = slices.Delete(a.sends, 0, i+1)
			}
		case p.qp.account.receives > 0:
			p.qp.account.receives--
			cq.demand--
		}
	}
	cq.unpolled = slices.Delete(cq.unpolled, 0, n)
}

// forget removes the queue pair from the accounts. The host drops its
// completions next.
func (qp *QP) forget() {
	qp.reportLate(true)
	for _, cq := range []*CQ{qp.sendCQ, qp.recvCQ} {
		if cq == nil || !qp.hca.config.Program {
			continue
		}
		if cq.state != CQFailed {
			cq.poll()
		}
		if cq.lost != nil && len(cq.unpolled) > 0 {
			cq.reportLost() // the host removes completions next
		}
		n := len(cq.unpolled)
		rest := slices.DeleteFunc(slices.Clone(cq.unpolled), func(p pending) bool {
			if p.qp == qp {
				cq.hca.arrived.polled(p.extents)
			}
			return p.qp == qp
		})
		cq.unpolled = append(make([]pending, n-len(rest)), rest...)
	}
	if qp.sendCQ != nil {
		qp.sendCQ.demand -= len(qp.account.sends)
	}
	if qp.recvCQ != nil {
		qp.recvCQ.demand -= qp.account.receives
	}
	qp.account = account{}
}

// Full checks a send queue that has no room for another request.
func (h *HCA) Full(number uint32) {
	qp := h.qps.objects[number]
	if qp == nil || qp.sendCQ == nil || qp.state != RTS || qp.sendCQ.state == CQFailed {
		return
	}
	qp.sendCQ.poll()
	sends := qp.account.sends
	if len(sends) > 0 && !slices.ContainsFunc(sends, func(s send) bool { return s.signaled }) {
		h.advise(Violation{Rule: RuleUnsignaled, QPN: number, CQN: qp.sendCQ.Number, Text: "the send queue of QP " +
			hex(number) + " is full, and none of its " + decimal(len(sends)) +
			" requests is signaled, so that nothing can free it: signal one of them"})
	}
}
