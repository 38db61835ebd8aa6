package engine

import (
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

// arm processes a store to the CQ doorbell of a UAR page.
func (h *HCA) arm(uar uint32, data []byte) {
	word, number := be32(data), be32(data[4:])&0xffffff
	sn, any, ci := word>>28&3, word&armSolicited == 0, word&0xffffff
	h.config.Tracer.Emit("uar", trace.Text("register", "cq_arm"), trace.Object("cq", "cq", number),
		trace.Num("sn", sn), trace.Bool("any", any), trace.Num("ci", ci))
	cq := h.cqs.objects[number]
	if cq == nil {
		h.violate(Violation{Rule: RuleUnknownQueue, CQN: number, Text: "an arm doorbell for a CQ that does not exist"})
		return
	}
	cq.checkArm(uar, word)
	if cq.state == CQFailed {
		return
	}
	cq.consume(ci, "arm doorbell")
	cq.timer.Stop()
	cq.waiting = 0
	pending := (cq.producer - ci) & 0xffffff
	if any {
		cq.state = CQArmed
	} else {
		cq.state = CQArmedSolicited
		if since := (cq.producer - cq.solicited) & 0xffffff; !cq.noted || since >= pending {
			pending = 0
		}
	}
	// Completions that the host had not polled when it armed generate an event.
	switch {
	case pending == 0:
	case h.config.Program:
		cq.armedLate(pending)
	default:
		cq.event()
	}
}

// armedLate is called if the host arms a CQ with completions that it has not polled. By the IBA, only later ones
// generate an event. A ConnectX generates one at once, but not each device does: with Config.Program, none is
// generated, and RuleLostWakeup is broken if the host does not poll.
func (cq *CQ) armedLate(n uint32) {
	if cq.lost != nil {
		return
	}
	cq.lost = &Violation{Rule: RuleLostWakeup, Origin: cq.hca.origin(), CQN: cq.Number, Text: "CQ " + hex(cq.Number) +
		" had completions before (" + decimal(n) + "), which raise no event and have not been polled since: poll after " +
		"Arm, before WaitEvent"}
}

// reportLost reports that the host has not polled completions which were there when it armed the CQ.
func (cq *CQ) reportLost() {
	if cq.lost != nil && cq.state != CQFailed {
		cq.poll() // it may have polled since the record was last read
	}
	if v := cq.lost; v != nil {
		cq.lost, v.Closing = nil, true
		cq.hca.advise(*v)
	}
}

// notify generates an event for a completion that was just written, if the CQ
// is armed for it.
func (cq *CQ) notify() {
	if cq.state != CQArmed && (cq.state != CQArmedSolicited || cq.solicited != cq.producer || !cq.noted) {
		return
	}
	if cq.waiting++; cq.MaxCount == 0 || cq.Period == 0 || cq.waiting >= int(cq.MaxCount) {
		cq.event()
		return
	}
	if cq.waiting == 1 {
		cq.timer = cq.hca.config.Loop.After(time.Duration(cq.Period)*time.Microsecond, cq.event)
	}
}

func (cq *CQ) event() {
	cq.timer.Stop()
	cq.waiting = 0
	cq.state = CQIdle
	cq.generated++
	cq.hca.config.Events.Completion(cq)
}

// Resize moves a CQ to another buffer. The last entry of the old one is a
// resize CQE. The host copies entries that it has not polled.
func (cq *CQ) Resize(logSize uint8, wide bool, buffer Buffer) error {
	a := cq.CQAttr
	a.LogSize, a.Wide, a.Buffer = logSize, wide, buffer
	if err := cq.hca.checkCQ(&a); err != nil {
		return err
	}
	if cq.state == CQFailed {
		return failf(ErrState, "CQ %#x has failed", cq.Number)
	}
	if !cq.poll() {
		return failf(ErrState, "CQ %#x has no doorbell record", cq.Number)
	}
	if held := cq.producer - cq.consumer; held >= min(a.size(), cq.size()) {
		return failf(ErrParam, "%d completions in CQ %#x of %d are not polled: too many for one of %d", held, cq.Number,
			cq.size(), a.size())
	}
	if err := cq.hca.keep(&buffer); err != nil {
		return err
	}
	var c completion
	prm.CQEOpcode.Set(c.cqe[:], prm.CQEResize)
	if !cq.write(&cq.CQAttr, cq.producer, &c) {
		cq.hca.drop(&buffer)
		return failf(ErrParam, "CQ %#x's buffer cannot be written", cq.Number)
	}
	cq.trace(c.cqe[:])
	cq.producer++
	cq.hca.drop(&cq.Buffer)
	cq.CQAttr = a
	cq.checkFresh()
	return nil
}
