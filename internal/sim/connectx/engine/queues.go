package engine

import (
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// posted returns the number of posted receive WQEs: the counter of a doorbell
// record less those already taken. A ring has 2^log. v has the queue's number.
func (h *HCA) posted(record uint64, taken uint16, log uint8, v Violation) (uint16, error) {
	w, err := h.record(record)
	if err != nil {
		return 0, err
	}
	n := uint16(w) - taken
	if int(n) > 1<<log {
		v.Rule = RuleRQOverrun
		v.Text += "the receive counter is " + hex(uint16(w)) + ", " + hex(taken) + " were used, and the ring has " +
			hex(uint32(1)<<log)
		h.violate(v)
		return 0, nil
	}
	return n, nil
}

// queues implements transport.Queues for a queue pair.
type queues struct {
	qp    *QP
	token uint32 // of the connection, for a DCT
}

func (q *queues) Next() *transport.Request { return q.qp.next() }

// Gather reads the payload of a request.
func (q *queues) Gather(r *transport.Request, off uint32, p []byte) transport.Syndrome {
	w := r.WQE.(*sendWQE)
	s := gather(w.pieces, uint64(off), p)
	if s != transport.PageFault {
		return s
	}
	return q.qp.fault(PageFault{Type: faultSend, Queue: q.qp.Number, Index: w.index, Committed: off,
		Length: uint32(len(p))},
		transport.LocalProtection)
}

// gather reads the memory of pieces. It returns PageFault if a page on demand
// is missing.
func gather(pieces []piece, off uint64, p []byte) transport.Syndrome {
	left := newBudget()
	for _, x := range pieces {
		if off >= x.n {
			off -= x.n
			continue
		}
		part := min(uint64(len(p)), x.n-off)
		if x.inline != nil {
			copy(p[:part], x.inline[off:])
		} else if !x.span.ok() {
			return transport.LocalProtection
		} else if a := x.span.read(off, p[:part], left); a != granted {
			return a.syndrome(transport.LocalProtection)
		}
		p, off = p[part:], 0
		if len(p) == 0 {
			break
		}
	}
	if len(p) > 0 {
		return transport.LocalProtection
	}
	return transport.OK
}

// scatter writes the memory of pieces. It returns PageFault if a page on demand
// is missing.
func scatter(pieces []piece, off uint64, p []byte) transport.Syndrome {
	left := newBudget()
	for _, x := range pieces {
		if off >= x.n {
			off -= x.n
			continue
		}
		part := min(uint64(len(p)), x.n-off)
		if a := x.span.write(off, p[:part], left); a != granted {
			return a.syndrome(transport.LocalProtection)
		}
		p, off = p[part:], 0
		if len(p) == 0 {
			break
		}
	}
	if len(p) > 0 {
		return transport.LocalLength
	}
	return transport.OK
}

// Scatter stores the data of a READ or an atomic. With scatter to CQE, small
// data goes to the completion.
func (q *queues) Scatter(r *transport.Request, off uint32, p []byte) transport.Syndrome {
	w := r.WQE.(*sendWQE)
	if r.Op != transport.Read { // the old value, in the host's byte order
		p = slices.Clone(p)
		slices.Reverse(p)
	}
	if limit := q.qp.scatterRequest(); w.signaled && int(r.Length) <= limit {
		if w.returned == nil {
			w.returned = make([]byte, 64)
		}
		copy(w.returned[off:], p)
		return transport.OK
	}
	s := scatter(w.pieces, uint64(off), p)
	if s != transport.PageFault {
		return s
	}
	return q.qp.fault(PageFault{Type: faultRead, Queue: q.qp.Number, Index: w.index, Committed: off,
		Length: uint32(len(p))},
		transport.LocalProtection)
}

// scatterRequest returns the maximum size of data in the completion of a
// request.
func (qp *QP) scatterRequest() int {
	if qp.Service != ServiceRC && qp.Service != ServiceDCI {
		return 0
	}
	return scatterLimit(qp.ScatterRequest, qp.sendCQ)
}

func scatterLimit(n uint8, cq *CQ) int {
	if n >= 64 && cq.Wide {
		return 64
	}
	return int(min(n, 32))
}

// intoCQE stores the data in the completion.
func (w *sendWQE) intoCQE(c *completion) {
	if w.returned != nil {
		c.inline(w.returned, int(w.request.Length))
	}
}

// inline stores a message in a completion.
func (c *completion) inline(data []byte, n int) {
	if n <= 32 {
		copy(c.cqe[:32], data[:n])
		prm.CQEFormat.Set(c.cqe[:], prm.CQEFormatInline32)
		return
	}
	c.data = data[:64]
	prm.CQEFormat.Set(c.cqe[:], prm.CQEFormatInline64)
}

// Execute executes a local request.
func (q *queues) Execute(r *transport.Request) transport.Syndrome {
	w := r.WQE.(*sendWQE)
	switch {
	case w.bad != transport.OK:
		return w.bad
	case w.opcode == prm.OpcodeUMR:
		return w.update()
	case w.opcode == prm.OpcodeLocalInval:
		return q.qp.invalidate(r.Imm)
	}
	return transport.OK
}

// Done completes a request.
func (q *queues) Done(r *transport.Request, s transport.Syndrome) {
	qp, w := q.qp, r.WQE.(*sendWQE)
	qp.sq.done = w.index + w.blocks
	if s == transport.OK {
		s, w.vendor = qp.hca.injected(qp)
	} else {
		w.explain(s)
		qp.failedPeer(s)
	}
	qp.completeSend(w, s)
	if s != transport.OK {
		qp.failSends(r.Stream)
	}
}

// SQDrained reports that all requests that had begun are done.
func (q *queues) SQDrained() {
	q.qp.sq.drained = true
	if q.qp.DrainEvent {
		q.qp.hca.async(EventSQDrained, q.qp.Number)
	}
}

// Established reports that the first packet arrived in RTR.
func (q *queues) Established() { q.qp.hca.async(EventEstablished, q.qp.Number) }

// Migrated reports a migration of the path.
func (q *queues) Migrated(ok bool) {
	if ok {
		q.qp.hca.async(EventPathMigrated, q.qp.Number)
	} else {
		q.qp.hca.async(EventMigrationFailed, q.qp.Number)
	}
}

// Broken moves the queue pair to its error state.
func (q *queues) Broken(e transport.Event) {
	qp := q.qp
	qp.fail()
	switch e {
	case transport.RequestError:
		qp.hca.async(EventQPRequest, qp.Number)
	case transport.AccessError:
		qp.hca.async(EventQPAccess, qp.Number)
	case transport.Catastrophic:
		qp.hca.async(EventQPFatal, qp.Number)
	}
}
