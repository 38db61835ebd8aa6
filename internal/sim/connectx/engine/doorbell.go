package engine

import (
	"bytes"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

// Registers of a UAR page that belong to the HCA. Those of event queues do not.
const (
	armRegister = 0x20
	flameBase   = 0x800
	flameSize   = 0x100
	flameEnd    = 0x1000
)

// How long the rest of a burst is awaited. The stores of a virtual machine
// arrive one by one, and the machine can lose its processor between any two. A
// hundred threads of libmlx5 that wait for the lock of a register each spin for
// a time slice before the thread that holds it continues.
const (
	nopTimeout   = 20 * time.Millisecond // after a doorbell of a NOP
	burstTimeout = time.Minute           // after more bytes; the doorbell has been executed
)

// A flameRegister is a send doorbell register of a UAR page.
type flameRegister struct {
	uar  uint32
	base uint32
}

// A flame is a doorbell that may be followed by the rest of its WQE: BlueFlame.
type flame struct {
	bytes    []byte
	want     int  // size of the WQE, rounded up to blocks
	pending  bool // the doorbell has not been executed yet
	combined bool // of smaller stores
	timer    *loop.Timer
}

// Store processes a store of the host to a UAR page: arming a CQ, a send
// doorbell, or a part of a BlueFlame burst. data is 8 bytes, a whole burst, or a part of 8 bytes of a burst.
func (h *HCA) Store(uar, offset uint32, data []byte) {
	h.watch.wake()
	switch {
	case offset == armRegister && len(data) == 8:
		h.arm(uar, data)
	case offset >= flameBase && offset < flameEnd && len(data)%8 == 0 && len(data) > 0 &&
		int(offset)+len(data) <= flameEnd:
		h.flame(uar, offset, data)
	case offset >= flameBase && offset < flameEnd && len(data) > 0 && 8%len(data) == 0 && int(offset)%len(data) == 0:
		h.combine(uar, offset, data)
	default:
		h.violate(Violation{Rule: RuleStore, Offset: uint64(offset), WQE: bytes.Clone(data),
			Text: "a store of " + hex(uint(len(data))) + " bytes to UAR page " + hex(uar)})
	}
}

// A fragment is the first part of 8 bytes that arrive in parts.
type fragment struct {
	offset uint32
	bytes  []byte
}

// combine collects smaller stores of a burst. Processors combine them in the buffers of such memory; UCX, for one,
// leaves it to the compiler how it copies 64 bytes.
func (h *HCA) combine(uar, offset uint32, data []byte) {
	at := flameRegister{uar, offset &^ (flameSize - 1)}
	p := h.fragments[at]
	switch {
	case offset%8 == 0:
		p = fragment{offset, bytes.Clone(data)}
	case len(p.bytes) > 0 && p.offset+uint32(len(p.bytes)) == offset:
		p.bytes = append(p.bytes, data...)
	default:
		h.violate(Violation{Rule: RuleStore, Offset: uint64(offset), WQE: bytes.Clone(data),
			Text: "a part of 8 bytes without its beginning, to UAR page " + hex(uar)})
		return
	}
	if h.fragments[at] = p; len(p.bytes) < 8 {
		return
	}
	delete(h.fragments, at)
	h.flame(uar, p.offset, p.bytes)
	if f := h.blueFlame[at]; f != nil {
		f.combined = true
	}
}

// flame processes a store to a send doorbell register.
func (h *HCA) flame(uar, offset uint32, data []byte) {
	at := flameRegister{uar, offset &^ (flameSize - 1)}
	in := int(offset & (flameSize - 1))
	if f := h.blueFlame[at]; f != nil && in != 0 {
		if in != len(f.bytes) {
			h.violate(Violation{Rule: RuleBlueFlame, Offset: uint64(offset), WQE: bytes.Clone(f.bytes),
				Text: "a burst does not continue where it stopped"})
			return
		}
		h.burst(at, f, data)
		return
	}
	if in != 0 {
		h.violate(Violation{Rule: RuleBlueFlame, Offset: uint64(offset), WQE: bytes.Clone(data),
			Text: "a burst without its beginning"})
		return
	}
	h.endBurst(at)
	h.endBurst(flameRegister{uar, at.base ^ flameSize})
	f := &flame{want: int(max(1, (prm.CtrlDS.Get(data)*16+block-1)/block)) * block, pending: true}
	h.blueFlame[at] = f
	h.burst(at, f, data)
}

// burst appends to a burst, and executes the doorbell when it is clear how.
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
		h.execute(at, f)
	case len(f.bytes) == 8 && (h.config.WholeBursts || prm.CtrlOpcode.Get(f.bytes) != prm.OpcodeNOP):
		// Usually this is a doorbell and nothing follows. The WQE is in memory
		// in any case. The bytes of a burst are compared when they have
		// arrived.
		h.execute(at, f)
	case len(f.bytes) == 8:
		// The driver tests with NOPs whether bursts are executed: it requests a
		// completion in the burst only. So wait for the burst.
		f.timer = h.config.Loop.After(nopTimeout, func() { h.execute(at, f) })
	default:
		f.timer = h.config.Loop.After(burstTimeout, func() { h.endBurst(at) })
	}
}

// endBurst ends a register's burst: no more bytes are expected. The user of a
// register alternates between it and its twin; the other registers of the page
// are independent.
func (h *HCA) endBurst(at flameRegister) {
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
	if f.combined && len(f.bytes) == 8 {
		h.violate(Violation{Rule: RuleStore, QPN: uint32(prm.CtrlQPN.Get(f.bytes)), Offset: uint64(at.base),
			WQE: bytes.Clone(f.bytes), Text: "a doorbell of several stores: the device may see a part of it"})
	}
	if f.pending {
		f.bytes = f.bytes[:8]
		h.execute(at, f)
	}
}

// endBursts ends the bursts of a send queue before a command for it, because
// its doorbells precede the command.
func (h *HCA) endBursts(number uint32) {
	for at, f := range h.blueFlame {
		if uint32(prm.CtrlQPN.Get(f.bytes)) == number {
			h.endBurst(at)
		}
	}
}

// execute executes a doorbell: eight bytes, or a whole WQE.
func (h *HCA) execute(at flameRegister, f *flame) {
	number := uint32(prm.CtrlQPN.Get(f.bytes))
	to := h.doorbellQueue(number)
	if f.pending {
		h.config.Tracer.Emit("uar", trace.Text("register", "send"), trace.Object("qp", "qp", number),
			trace.Num("index", prm.CtrlWQEIndex.Get(f.bytes)),
			trace.Text("opcode", opcodeName(uint8(prm.CtrlOpcode.Get(f.bytes)))), trace.Num("ds", prm.CtrlDS.Get(f.bytes)))
	}
	if len(f.bytes) > 8 {
		h.config.Tracer.Emit("uar", trace.Text("register", "blueflame"), trace.Object("qp", "qp", number),
			trace.Num("index", prm.CtrlWQEIndex.Get(f.bytes)),
			trace.Num("bytes", len(f.bytes)))
	}
	if to == nil {
		if f.pending {
			h.violate(Violation{Rule: RuleUnknownQueue, QPN: number, WQE: bytes.Clone(f.bytes),
				Text: "a doorbell for a send queue that does not exist"})
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
		h.violate(Violation{Rule: RuleUAR, QPN: number, Text: "a doorbell in UAR page " + hex(at.uar) + ", the queue's is " +
			hex(uar)})
	}
	to.doorbell(f.bytes[:8])
}

// A doorbellQueue is a send queue with a doorbell.
type doorbellQueue interface {
	queue() *sendQueue
	doorbell(ctrl []byte)
}

// doorbellQueue returns the send queue with the given number, or nil.
func (h *HCA) doorbellQueue(number uint32) doorbellQueue {
	if qp := h.qps.objects[number]; qp != nil && !qp.NoSQ {
		return qp
	}
	if q := h.eth.sqs.objects[number]; q != nil {
		return q
	}
	return nil
}

// takeBurst keeps a burst to be executed instead of the WQE in memory, and
// compares the two.
func (q *sendQueue) takeBurst(f *flame) {
	index := uint16(prm.CtrlWQEIndex.Get(f.bytes))
	n := int(prm.CtrlDS.Get(f.bytes)) * 16
	if uint64(len(f.bytes)) > q.size || n < 16 {
		return
	}
	mem := make([]byte, n)
	// The driver's test of BlueFlame uses a NOP that differs on purpose.
	if q.hca.config.Strict && prm.CtrlOpcode.Get(f.bytes) != prm.OpcodeNOP &&
		q.hca.ring(q.buffer, q.base, q.size, q.offset(index), mem) == nil && !bytes.Equal(mem, f.bytes[:n]) &&
		int16(index-q.done) >= 0 {
		q.hca.violate(Violation{Rule: RuleBlueFlame, QPN: q.number, Index: index, Offset: q.offset(index),
			WQE:  bytes.Clone(f.bytes),
			Text: "the burst differs from the WQE in memory"})
	}
	if f.pending {
		q.burst, q.burstIndex = f.bytes, index
	}
}
