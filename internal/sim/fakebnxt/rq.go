package fakebnxt

import (
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
)

// A recvRing is a ring of receives.
type recvRing struct {
	memory devfile.Memory
	addr   uint64
	bytes  uint64
	depth  uint32 // receives
	slots  uint32 // of a receive
	next   uint32 // the first receive that the device has not read
	known  uint32 // the first one that the program has not announced
	epoch  uint32 // of the last doorbell
	begun  bool   // there was a doorbell in this life of the queue

	recorded []uint32 // tags of the receives that have been read for Record and have not completed
}

func (r *recvRing) reset() { r.next, r.known, r.begun, r.recorded = 0, 0, false, nil }

// posted returns how many receives there are.
func (r *recvRing) posted() int { return int((r.known + r.depth - r.next) % r.depth) }

// announce notes a doorbell. It reports whether it can be one of this queue.
func (r *recvRing) announce(d doorbell) bool {
	if d.index >= r.depth {
		return false
	}
	wrapped := d.index < r.known
	fits := !r.begun || wrapped == (d.epoch != r.epoch)
	r.known, r.epoch, r.begun = d.index, d.epoch, true
	return fits
}

// A receive is what the program has posted for a message.
type receive struct {
	index uint32 // of the receive in its ring
	tag   uint32 // what the program has stored in it
	raw   []byte
	sges  []fakedev.SGE
}

const tagInReceive = 8

// take reads the next receive, or returns nil if there is none or it cannot be one.
func (r *recvRing) take() *receive {
	if r.next == r.known {
		return nil
	}
	b := make([]byte, r.slots*slotSize)
	if !r.memory.Read(r.addr+uint64(r.next)*uint64(len(b)), b) {
		return nil
	}
	le := binary.LittleEndian
	n := uint32(b[slotsAt])
	if b[opAt] != opReceive || n < headSlots || n > r.slots {
		return nil
	}
	x := &receive{index: r.next, tag: le.Uint32(b[tagInReceive:]), raw: b[:n*slotSize]}
	for b = x.raw[headSlots*slotSize:]; len(b) > 0; b = b[slotSize:] {
		x.sges = append(x.sges, sgeOf(b))
	}
	r.next = (r.next + 1) % r.depth
	return x
}

// recordReceives records what a doorbell announces.
func (d *Device) recordReceives(what string, r *recvRing) {
	if !d.Recording() {
		return
	}
	for x := r.take(); x != nil; x = r.take() {
		r.recorded = append(r.recorded, x.tag)
		b := slices.Clone(x.raw)
		clear(b[4:8])
		clear(b[12 : headSlots*slotSize])
		if len(x.sges) == 1 && x.sges[0].N == 0 { // C's library writes no more than the length
			clear(b[headSlots*slotSize:])
		}
		d.Record("%s %d %s", what, x.index, hex.EncodeToString(b))
	}
}

// recvBell is called with a doorbell of the receive queue.
func (q *qp) recvBell(d doorbell) {
	if !q.rq.announce(d) {
		q.kernel.Problem("QP %d: a doorbell of receives with index %d and epoch %d", q.Number, d.index, d.epoch)
	}
	q.dev.recordReceives("RQ", &q.rq)
}

// An srq is a shared receive queue.
type srq struct {
	kernel *kernel
	handle uint32
	number uint32
	pd     uint32
	ring   recvRing
	limit  uint32
	armed  bool
	toggle toggle
}

// bell is called with a doorbell of the queue.
func (s *srq) bell(d doorbell) {
	if !s.ring.announce(d) {
		s.kernel.Problem("SRQ %d: a doorbell with index %d and epoch %d", s.number, d.index, d.epoch)
	}
	s.kernel.dev.recordReceives("SRQ", &s.ring)
}

// arm is called with a doorbell that requests an event when fewer receives are left than its index says.
func (s *srq) arm(d doorbell) {
	if d.toggle != s.toggle.count {
		s.kernel.Problem("SRQ %d: a doorbell that arms after %d events has %d", s.number, s.toggle.count, d.toggle)
		return
	}
	s.setLimit(d.index)
}

// setLimit requests an event when fewer receives are left. The kernel's driver does so in MODIFY_SRQ.
func (s *srq) setLimit(n uint32) {
	s.armed, s.limit = true, n
	s.notify()
}

func (s *srq) notify() {
	if !s.armed || s.ring.posted() >= int(s.limit) {
		return
	}
	s.armed, s.limit = false, 0
	s.toggle.event()
	s.kernel.Happened("SRQ", s.handle, fakedev.EventSRQLimit)
}

// receives returns the ring of a QP's receives.
func (q *qp) receives() *recvRing {
	if q.srq != nil {
		return &q.srq.ring
	}
	return &q.rq
}

// Receive implements transport.Queues, as do the methods below.
func (q *qp) Receive(uint32) (*transport.Receive, transport.Syndrome) {
	x := q.receives().take()
	if x == nil {
		return nil, transport.OK
	}
	if q.srq != nil {
		q.srq.notify()
	}
	return &transport.Receive{WQE: x}, transport.OK
}

// Posted returns how many receives there are.
func (q *qp) Posted(uint32) int { return q.receives().posted() }

// Deliver stores a part of a message.
func (q *qp) Deliver(rc *transport.Receive, off uint32, p []byte) transport.Syndrome {
	return q.dev.Scatter(q.PD, rc.WQE.(*receive).sges, off, p)
}

// recvStatus has the status of a receive.
var recvStatus = map[transport.Syndrome]byte{transport.OK: 0, transport.LocalAccess: 1, transport.LocalLength: 2,
	transport.LocalProtection: 3, transport.LocalQPOp: 4, transport.RemoteInvalidRequest: 6, transport.Flushed: 7}

// Arrived completes a receive.
func (q *qp) Arrived(rc *transport.Receive, m transport.Message) {
	x := rc.WQE.(*receive)
	kind := byte(typeRecvRC)
	if q.UD {
		kind = typeRecvUD
	}
	e := newEntry(kind, recvStatus[m.Syndrome])
	e.put32(lengthAt, m.Length)
	e.put64(recvHandleAt, q.cookie)
	e.put32(tagAt, x.tag)
	if q.srq != nil {
		e[flagsAt] |= flagSRQ
	}
	if m.Op == transport.SendImm || m.Op == transport.WriteImm {
		e[flagsAt] |= flagImm
		e.put32(immAt, m.Imm)
	}
	if m.Op == transport.WriteImm {
		e[flagsAt] |= flagRDMA
	}
	if q.UD && m.Packet != nil {
		e.put16(sourceAt, uint16(m.Packet.DETH.SrcQPN))
		e[sourceHighAt] = byte(m.Packet.DETH.SrcQPN >> 16)
		e[flagsAt] |= 2 << 4 // RoCE v2 with IPv4
	}
	q.recv.complete(e, m.Solicited)
	if m.Syndrome != transport.OK {
		q.Fail()
	}
}
