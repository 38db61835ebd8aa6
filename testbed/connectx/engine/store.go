package engine

import (
	"bytes"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/loop"
	"github.com/goverbs/goverbs/testbed/connectx/prm"
	"github.com/goverbs/goverbs/testbed/connectx/trace"
)

// Registers of a UAR page that are the HCA's. Those of event queues are not.
const (
	armRegister = 0x20
	flameBase   = 0x800
	flameSize   = 0x100
	flameEnd    = 0x1000
)

// For how long more of a burst is waited for. The stores of a virtual machine come
// one by one, and the machine can lose its processor between any two.
const (
	nopPatience   = 20 * time.Millisecond // for any more than a doorbell's bytes
	flamePatience = 5 * time.Second       // for the rest of a burst, which has been rung for
)

// A flameRegister is a send doorbell of a UAR page.
type flameRegister struct {
	uar  uint32
	base uint32
}

// A flame is a doorbell whose WQE may follow it: BlueFlame.
type flame struct {
	bytes   []byte
	want    int  // bytes of the WQE, in blocks
	pending bool // the queue has not been rung yet
	timer   *loop.Timer
}

// Store is a store of the host's to a page of registers: the arming of a CQ, a
// send doorbell, or a part of a burst. data is 8 bytes, or a whole burst at once.
func (h *HCA) Store(uar, offset uint32, data []byte) {
	h.watch.stir()
	switch {
	case offset == armRegister && len(data) == 8:
		h.arm(uar, data)
	case offset >= flameBase && offset < flameEnd && len(data)%8 == 0 && len(data) > 0 && int(offset)+len(data) <= flameEnd:
		h.flame(uar, offset, data)
	default:
		h.violate(Violation{Rule: RuleStore, Offset: uint64(offset), WQE: bytes.Clone(data), Text: "a store of " + hex(uint(len(data))) + " bytes to UAR page " + hex(uar)})
	}
}

// flame takes a store to a send doorbell.
func (h *HCA) flame(uar, offset uint32, data []byte) {
	at := flameRegister{uar, offset &^ (flameSize - 1)}
	in := int(offset & (flameSize - 1))
	if f := h.blueFlame[at]; f != nil && in != 0 {
		if in != len(f.bytes) {
			h.violate(Violation{Rule: RuleBlueFlame, Offset: uint64(offset), WQE: bytes.Clone(f.bytes), Text: "a burst does not go on where it stopped"})
			return
		}
		h.burst(at, f, data)
		return
	}
	if in != 0 {
		h.violate(Violation{Rule: RuleBlueFlame, Offset: uint64(offset), WQE: bytes.Clone(data), Text: "a burst without its beginning"})
		return
	}
	h.settle(at)
	h.settle(flameRegister{uar, at.base ^ flameSize})
	f := &flame{want: int(max(1, (prm.CtrlDS.Get(data)*16+block-1)/block)) * block, pending: true}
	h.blueFlame[at] = f
	h.burst(at, f, data)
}

// burst appends to a burst, and rings when it is clear what to do.
func (h *HCA) burst(at flameRegister, f *flame, data []byte) {
	f.bytes = append(f.bytes, data...)
	f.timer.Stop()
	if len(f.bytes) > f.want {
		h.violate(Violation{Rule: RuleBlueFlame, Offset: uint64(at.base), WQE: bytes.Clone(f.bytes),
			Text: "a burst of " + hex(uint(len(f.bytes))) + " bytes, the WQE has " + hex(uint(f.want))})
		f.bytes = f.bytes[:f.want]
	}
	switch {
	case len(f.bytes) == f.want:
		delete(h.blueFlame, at)
		h.rung(at, f)
	case len(f.bytes) == 8 && prm.CtrlOpcode.Get(f.bytes) != prm.OpcodeNOP:
		// Mostly this is a doorbell and nothing follows. The WQE is in memory in
		// any case; that a burst has the same bytes is checked when it has come.
		h.rung(at, f)
	case len(f.bytes) == 8:
		// The driver tries with NOPs whether bursts are executed, so it should be:
		// it asks for a completion in the burst alone.
		f.timer = h.config.Loop.After(nopPatience, func() { h.rung(at, f) })
	default:
		f.timer = h.config.Loop.After(flamePatience, func() { h.settle(at) })
	}
}

// settle ends a register's burst: what has not come will not come. Who has a
// register writes to it and to its twin by turns; those of a page's other
// registers have nothing to do with it.
func (h *HCA) settle(at flameRegister) {
	f := h.blueFlame[at]
	if f == nil {
		return
	}
	delete(h.blueFlame, at)
	f.timer.Stop()
	if len(f.bytes) > 8 {
		h.violate(Violation{Rule: RuleBlueFlame, Offset: uint64(at.base), WQE: bytes.Clone(f.bytes),
			Text: "a burst stopped after " + hex(uint(len(f.bytes))) + " of " + hex(uint(f.want)) + " bytes"})
	}
	if f.pending {
		f.bytes = f.bytes[:8]
		h.rung(at, f)
	}
}

// settleQueue ends the bursts of a send queue that a command is for: its doorbells
// were rung before.
func (h *HCA) settleQueue(number uint32) {
	for at, f := range h.blueFlame {
		if uint32(prm.CtrlQPN.Get(f.bytes)) == number {
			h.settle(at)
		}
	}
}

// rung executes a doorbell: eight bytes, or a whole WQE.
func (h *HCA) rung(at flameRegister, f *flame) {
	number := uint32(prm.CtrlQPN.Get(f.bytes))
	to := h.sender(number)
	if f.pending {
		h.config.Tracer.Emit("uar", trace.Text("register", "send"), trace.Object("qp", "qp", number), trace.Num("index", prm.CtrlWQEIndex.Get(f.bytes)),
			trace.Text("opcode", opcodeName(uint8(prm.CtrlOpcode.Get(f.bytes)))), trace.Num("ds", prm.CtrlDS.Get(f.bytes)))
	}
	if len(f.bytes) > 8 {
		h.config.Tracer.Emit("uar", trace.Text("register", "blueflame"), trace.Object("qp", "qp", number), trace.Num("index", prm.CtrlWQEIndex.Get(f.bytes)),
			trace.Num("bytes", len(f.bytes)))
	}
	if to == nil {
		if f.pending {
			h.violate(Violation{Rule: RuleUnknownQueue, QPN: number, WQE: bytes.Clone(f.bytes), Text: "a doorbell for a send queue that does not exist"})
		}
		f.pending = false
		return
	}
	if len(f.bytes) > 8 {
		to.queue().takeBurst(f)
	}
	if !f.pending {
		return
	}
	f.pending = false
	if uar := to.queue().uar; at.uar != uar {
		h.violate(Violation{Rule: RuleUAR, QPN: number, Text: "a doorbell in UAR page " + hex(at.uar) + ", the queue's is " + hex(uar)})
	}
	to.rung(f.bytes[:8])
}

// A sender is what a send doorbell can be for.
type sender interface {
	queue() *sendQueue
	rung(ctrl []byte)
}

// sender finds a send queue by its number.
func (h *HCA) sender(number uint32) sender {
	if qp := h.qps.objects[number]; qp != nil && !qp.NoSQ {
		return qp
	}
	if q := h.eth.sqs.objects[number]; q != nil {
		return q
	}
	return nil
}

// takeBurst keeps a burst to be executed in the place of the WQE in memory, and
// compares the two.
func (q *sendQueue) takeBurst(f *flame) {
	index := uint16(prm.CtrlWQEIndex.Get(f.bytes))
	n := int(prm.CtrlDS.Get(f.bytes)) * 16
	if uint64(len(f.bytes)) > q.size || n < 16 {
		return
	}
	mem := make([]byte, n)
	// The driver tries what BlueFlame does with a NOP that differs on purpose.
	if q.hca.config.Strict && prm.CtrlOpcode.Get(f.bytes) != prm.OpcodeNOP &&
		q.hca.ring(q.buffer, q.base, q.size, q.offset(index), mem) == nil && !bytes.Equal(mem, f.bytes[:n]) && int16(index-q.done) >= 0 {
		q.hca.violate(Violation{Rule: RuleBlueFlame, QPN: q.number, Index: index, Offset: q.offset(index), WQE: bytes.Clone(f.bytes),
			Text: "the burst differs from the WQE in memory"})
	}
	if f.pending {
		q.burst, q.burstIndex = f.bytes, index
	}
}
