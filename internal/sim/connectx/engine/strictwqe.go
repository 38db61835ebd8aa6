package engine

import (
	"bytes"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

func (w *sendWQE) violate(rule Rule, text string, places ...Place) {
	q := w.queue
	if !q.hca.config.Strict {
		return
	}
	q.hca.violate(Violation{Rule: rule, Origin: q.origins.of(w.index), QPN: q.number, Index: w.index,
		Offset: q.offset(w.index), WQE: bytes.Clone(w.raw), Text: text, Places: places})
}

// checkZero reports a reserved field that is not zero.
func (w *sendWQE) checkZero(f prm.Field, segment []byte) {
	if f.Is(segment) {
		w.violate(RuleReserved, f.Name+" is "+hex(f.Get(segment)))
	}
}

// checkControl checks the control segment.
func (w *sendWQE) checkControl() {
	for _, f := range []prm.Field{prm.CtrlReserved7, prm.CtrlReserved11, prm.CtrlReserved12} {
		w.checkZero(f, w.raw)
	}
	if w.qp == nil || w.qp.Service != ServiceDCI { // a DCI without streams ignores it: perftest counts it up
		w.checkZero(prm.CtrlStream, w.raw)
	}
	if i := uint16(prm.CtrlWQEIndex.Get(w.raw)); i != w.index {
		w.violate(RuleIndex, "the WQE has index "+hex(i)+" in the place of "+hex(w.index))
	}
	if n := uint32(prm.CtrlQPN.Get(w.raw)); n != w.queue.number {
		w.violate(RuleQPN, "the WQE is for queue "+hex(n))
	}
	if prm.CtrlFence.Get(w.raw) > prm.FenceFull {
		w.violate(RuleReserved, "fence mode "+hex(prm.CtrlFence.Get(w.raw)))
	}
}

// checkData checks the data segments as a whole.
func (w *sendWQE) checkData() {
	r := &w.request
	switch {
	case w.bad != transport.OK:
		return
	case r.Op >= transport.CompareSwap && r.Op <= transport.MaskedFetchAdd:
		if len(w.pieces) != 1 || r.Length != 8 {
			w.violate(RuleAtomicAddress, "an atomic's response is eight bytes, not "+hex(r.Length))
			if r.Length < 8 {
				w.fail(transport.LocalQPOp)
				return
			}
		}
		r.Length = 8
	}
	if w.returnsData() {
		for _, p := range w.pieces {
			if p.inline != nil {
				w.reject(RuleSegments, "inline data for the response")
				return
			}
		}
	}
}

// unknown reports whether a local key does not exist.
func (h *HCA) unknown(key uint32, reserved bool) bool {
	if key == NullMKey || key == NoMKey || key == ReservedLKey && reserved {
		return false
	}
	k := h.mkeys.objects[key>>8]
	return k == nil || k.Variant != uint8(key)
}

// check compares a doorbell with the record and its WQE.
func (q *sendQueue) check(ctrl []byte, producer uint16) {
	h := q.hca
	if !h.config.Strict {
		return
	}
	index := uint16(prm.CtrlWQEIndex.Get(ctrl))
	blocks := ctrlBlocks(ctrl)
	v := Violation{QPN: q.number, Index: index, Offset: q.offset(index), WQE: bytes.Clone(ctrl)}
	if int16(producer-(index+blocks)) < 0 {
		v.Rule = RuleRecord
		v.Text = "the send counter is " + hex(producer) + ", the doorbell is for WQE " + hex(index) + " of " + hex(blocks) +
			" blocks"
		h.violate(v)
	}
	if n := producer - q.done; n > q.blocks() {
		v.Rule = RuleSQOverrun
		v.Text = "the send counter is " + hex(producer) + ", WQE " + hex(q.done) + " is not done, and the ring has " +
			hex(q.blocks()) + " blocks"
		h.violate(v)
	}
	var mem [8]byte
	if int16(index-q.head) >= 0 && h.load(q.buffer, q.base+q.offset(index), mem[:]) == nil &&
		!bytes.Equal(mem[:], ctrl[:8]) {
		v.Rule = RuleDoorbell
		v.Text = "the doorbell differs from the WQE in memory"
		h.violate(v)
	}
}
