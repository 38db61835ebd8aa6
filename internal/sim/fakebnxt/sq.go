package fakebnxt

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A sendRing is a send queue: a ring of slots, and a table with the PSNs of the requests of an RC QP.
type sendRing struct {
	memory   devfile.Memory
	addr     uint64
	bytes    uint64 // with the table
	depth    uint32 // slots
	requests uint32 // modulus of their count
	variable bool
	msn      bool
	table    uint64 // its address
	messages uint32 // size of the table by message
	start    bool   // the next doorbell is the first one in this life of the QP

	next  uint32 // the first request that the device has not read: a slot, or a number of eight slots
	known uint32 // the first one that the program has not announced
	epoch uint32 // of the last doorbell
	count uint32 // requests read, modulo requests
	done  uint32 // the first request that has not completed, modulo requests
	msg   uint32 // the next entry of the table by message
	psn   uint32

	recorded []uint32 // the requests, by slot or number, that have been read for Record and have not completed
}

const (
	psnSize = 16
	msnSize = 8
)

func (s *sendRing) init(k *kernel, u *uapi.BnxtReQpReq, size *uapi.IbUverbsQpCap, ud bool) {
	*s = sendRing{memory: k.Memory, addr: u.Qpsva, variable: k.variable, msn: k.dev.fabric.cfg.MSN, start: true}
	s.requests = k.depth(size.MaxSendWr+1+reserved, maxWR+1+reserved)
	s.depth = s.requests * fixedSlots
	if s.variable {
		s.depth, s.requests = u.SqSlots, u.SqSlots
	}
	s.bytes = uint64(s.depth) * slotSize
	s.table = s.addr + s.bytes
	n := s.requests
	if s.msn {
		n = 1 << bits.Len32(n-1)
		if s.messages = n; s.variable {
			s.messages = n / 2
		}
	}
	if !ud {
		s.bytes += uint64(n) * psnSize // the driver reserves as much for the table by message
	}
}

// reset empties the queue. The table by message goes on after the requests that the device has not read: C's library
// does so.
func (s *sendRing) reset() {
	for w := (*wqe)(nil); s.msn && s.next != s.known; {
		if w, s.next = s.fetch(s.next); w == nil {
			break
		}
		s.msg = (s.msg + 1) % s.messages
	}
	s.next, s.known, s.count, s.done, s.start, s.recorded = 0, 0, 0, 0, true, nil
}

// size returns how many values the index of a doorbell has.
func (s *sendRing) size() uint32 {
	if s.variable {
		return s.depth
	}
	return s.requests
}

// A wqe is a request as the program has written it.
type wqe struct {
	raw      []byte
	index    uint32 // by which doorbells name it
	slots    uint32 // of the ring
	signaled bool
	op       byte
	sges     []fakedev.SGE
	inline   []byte
	bad      transport.Syndrome
	request  transport.Request
}

// sgeOf returns the SGE in a slot.
func sgeOf(b []byte) fakedev.SGE {
	le := binary.LittleEndian
	return fakedev.SGE{Addr: le.Uint64(b), Key: le.Uint32(b[8:]), N: le.Uint32(b[12:])}
}

// The first slot of a request.
const (
	opAt      = 0
	wqeFlags  = 1
	slotsAt   = 2
	wqeImmAt  = 4
	wqeLenAt  = 8 // or the remote address of an atomic
	qkeyAt    = 12
	secondAt  = 16
	rdmaKeyAt = 24
	compareAt = 24

	wqeSignaled  = 1 << 0
	wqeFence     = 1 << 2 // UC_FENCE, which C's library sets
	wqeSolicited = 1 << 3
	wqeInline    = 1 << 4
)

// Operations.
const (
	opSend      = 0x00
	opSendImm   = 0x01
	opWrite     = 0x04
	opWriteImm  = 0x05
	opRead      = 0x06
	opCompare   = 0x08
	opFetchAdd  = 0x0b
	opReceive   = 0x80
	maxMessage  = 1 << 31
	atomicSize  = 8
	networkSize = 40
)

var operations = map[byte]transport.Op{opSend: transport.Send, opSendImm: transport.SendImm, opWrite: transport.Write,
	opWriteImm: transport.WriteImm, opRead: transport.Read, opCompare: transport.CompareSwap,
	opFetchAdd: transport.FetchAdd}

// read reads n slots from a slot on.
func (s *sendRing) read(slot, n uint32) ([]byte, bool) {
	b := make([]byte, n*slotSize)
	for i := range n {
		at := (slot + i) % s.depth
		if !s.memory.Read(s.addr+uint64(at)*slotSize, b[i*slotSize:][:slotSize]) {
			return nil, false
		}
	}
	return b, true
}

// fetch reads the request at an index, and returns the next index.
func (s *sendRing) fetch(index uint32) (*wqe, uint32) {
	slot := index
	if !s.variable {
		slot *= fixedSlots
	}
	head, ok := s.read(slot, 1)
	if !ok {
		return nil, 0
	}
	w := &wqe{index: index, slots: uint32(head[slotsAt])}
	if w.slots < headSlots || w.slots > headSlots+maxVarSGE || w.slots > s.depth || !s.variable && w.slots > fixedSlots {
		return nil, 0
	}
	if w.raw, ok = s.read(slot, w.slots); !ok {
		return nil, 0
	}
	if s.variable {
		return w, (index + w.slots) % s.depth
	}
	return w, (index + 1) % s.requests
}

// decode interprets a request.
func (q *qp) decode(w *wqe) {
	le := binary.LittleEndian
	b := w.raw
	w.op, w.signaled = b[opAt], b[wqeFlags]&wqeSignaled != 0
	op, known := operations[w.op]
	r := &w.request
	*r = transport.Request{Op: op, Length: le.Uint32(b[wqeLenAt:]), Imm: le.Uint32(b[wqeImmAt:]),
		Solicited: b[wqeFlags]&wqeSolicited != 0, Fence: b[wqeFlags]&wqeFence != 0, WQE: w}
	switch {
	case !known || q.UD && op != transport.Send && op != transport.SendImm:
		w.bad = transport.LocalQPOp
	case op == transport.CompareSwap || op == transport.FetchAdd:
		r.Length, r.RemoteAddr, r.RKey = atomicSize, le.Uint64(b[wqeLenAt:]), le.Uint32(b[wqeImmAt:])
		r.Operand = [4]uint64{le.Uint64(b[secondAt:]), le.Uint64(b[compareAt:])}
	case op != transport.Send && op != transport.SendImm:
		r.RemoteAddr, r.RKey = le.Uint64(b[secondAt:]), le.Uint32(b[rdmaKeyAt:])
	case q.UD:
		a := q.dev.AHs[le.Uint32(b[secondAt+4:])]
		if a == nil || a.PD != q.PD {
			w.bad = transport.LocalQPOp
			break
		}
		r.Dest = &transport.Dest{Path: a.Path, QPN: le.Uint32(b[secondAt:]), QKey: le.Uint32(b[qkeyAt:])}
	}
	w.data(b[wqeFlags]&wqeInline != 0)
	if w.bad != transport.OK {
		*r = transport.Request{Op: transport.Local, WQE: w}
	}
}

// data decodes the SGEs or the inline data.
func (w *wqe) data(inline bool) {
	b, r := w.raw[headSlots*slotSize:], &w.request
	if inline {
		if int(r.Length) > len(b) || r.Length > maxInline {
			w.bad = transport.LocalLength
			return
		}
		w.inline = b[:r.Length]
		return
	}
	total := uint64(0)
	for ; len(b) > 0; b = b[slotSize:] {
		s := sgeOf(b)
		w.sges = append(w.sges, s)
		total += uint64(s.N)
	}
	if total != uint64(r.Length) || total > maxMessage {
		w.bad = transport.LocalLength
	}
}

// sendBell is called with a doorbell of the send queue.
func (q *qp) sendBell(d doorbell) {
	s := &q.sq
	if d.index >= s.size() {
		q.kernel.Problem("QP %d: a doorbell with index %d of %d", q.Number, d.index, s.size())
		return
	}
	if wrapped := d.index < s.known; !s.start && wrapped != (d.epoch != s.epoch) {
		q.kernel.Problem("QP %d: a doorbell with index %d and epoch %d after %d and %d", q.Number, d.index, d.epoch, s.known,
			s.epoch)
	}
	s.known, s.epoch, s.start = d.index, d.epoch, false
	if q.dev.Recording() {
		for w := q.fetch(); w != nil; w = q.fetch() {
			s.recorded = append(s.recorded, w.index)
		}
		return
	}
	q.Endpoint.Kick()
}

// fetch reads the next request, or returns nil if there is none.
func (q *qp) fetch() *wqe {
	s := &q.sq
	if s.next == s.known {
		return nil
	}
	at := s.next
	w, next := s.fetch(at)
	if w == nil {
		q.kernel.Problem("QP %d: the request at index %d is none", q.Number, at)
		s.next = s.known
		q.Fatal()
		return nil
	}
	s.next = next
	s.count = (s.count + 1) % s.requests
	q.decode(w)
	q.dev.Record("SQ %d %s", at, hex.EncodeToString(masked(w)))
	q.checkPSN(w, at)
	return w
}

// masked returns a request without the bytes that the device does not read.
func masked(w *wqe) []byte {
	b := append([]byte(nil), w.raw...)
	switch w.op {
	case opSend, opWrite, opRead:
		clear(b[wqeImmAt:][:4])
	}
	switch w.op {
	case opSend, opSendImm:
		clear(b[secondAt+8:][:8])
		if w.request.Dest == nil {
			clear(b[secondAt:][:8])
		}
	case opWrite, opWriteImm, opRead:
		clear(b[rdmaKeyAt+4:][:4])
	case opFetchAdd:
		clear(b[compareAt:][:8])
	}
	if w.inline != nil {
		clear(b[headSlots*slotSize+len(w.inline):])
	}
	return b
}

const psnMask = 1<<24 - 1

// checkPSN checks the entry of the table that belongs to a request.
func (q *qp) checkPSN(w *wqe, index uint32) {
	s := &q.sq
	if q.UD {
		return
	}
	packets := uint32(1)
	if n, mtu := uint64(w.request.Length), uint64(q.Endpoint.Config().MTU); n > 0 {
		packets = uint32((n + mtu - 1) / mtu)
	}
	first, next := s.psn, (s.psn+packets)&psnMask
	s.psn = next
	at, size := s.table+uint64(index)*psnSize, psnSize
	if s.msn {
		at, size = s.table+uint64(s.msg)*msnSize, msnSize
		s.msg = (s.msg + 1) % s.messages
	}
	b := make([]byte, size)
	if !s.memory.Read(at, b) {
		return
	}
	le := binary.LittleEndian
	q.dev.Record("PSN %s", hex.EncodeToString(b))
	v := [3]uint32{le.Uint32(b) & psnMask, le.Uint32(b[4:]) & psnMask}
	if s.msn {
		u := le.Uint64(b)
		v = [3]uint32{uint32(u) & psnMask, uint32(u>>24) & psnMask, uint32(u >> 48)}
	} else {
		v[2] = uint32(le.Uint16(b[8:]))
	}
	if want := [3]uint32{first, next, index}; v != want && w.bad == transport.OK {
		q.kernel.Problem("QP %d: the request at index %d has the PSNs and index %d, want %d", q.Number, index, v, want)
	}
}

// Next implements transport.Queues, as do the methods below.
func (q *qp) Next() *transport.Request {
	if w := q.fetch(); w != nil {
		return &w.request
	}
	return nil
}

// Gather reads the payload of a request.
func (q *qp) Gather(r *transport.Request, off uint32, p []byte) transport.Syndrome {
	w := r.WQE.(*wqe)
	if w.inline != nil {
		copy(p, w.inline[off:])
		return transport.OK
	}
	return q.dev.Gather(q.PD, w.sges, off, p)
}

// Scatter stores the data of a READ or an atomic.
func (q *qp) Scatter(r *transport.Request, off uint32, p []byte) transport.Syndrome {
	return q.dev.ScatterResponse(q.PD, r.WQE.(*wqe).sges, r.Op, off, p)
}

// Execute returns the error of a request that the device does not know.
func (q *qp) Execute(r *transport.Request) transport.Syndrome { return r.WQE.(*wqe).bad }

// sendStatus has the status of a send.
var sendStatus = map[transport.Syndrome]byte{transport.OK: 0, transport.BadResponse: 1, transport.LocalLength: 2,
	transport.LocalQPOp: 3, transport.LocalProtection: 4, transport.RemoteInvalidRequest: 6, transport.RemoteAccess: 7,
	transport.RemoteOp: 8, transport.RNRRetry: 9, transport.TransportRetry: 10, transport.Flushed: 11}

// consumer returns the index of a completion: the number of the next request. As the kernel's driver expects it, that
// of a request that failed is its slot if requests have different sizes.
func (s *sendRing) consumer(index uint32, failed bool) uint16 {
	if failed && s.variable {
		return uint16(index)
	}
	return uint16(s.done)
}

// Done completes a request.
func (q *qp) Done(r *transport.Request, s transport.Syndrome) {
	w := r.WQE.(*wqe)
	q.sq.done = (q.sq.done + 1) % q.sq.requests
	if w.signaled || q.SignalAll || s != transport.OK {
		e := newEntry(typeSend, sendStatus[s])
		e.put64(handleAt, q.cookie)
		e.put16(consumerAt, q.sq.consumer(w.index, s != transport.OK))
		q.send.complete(e, false)
	}
	if s != transport.OK {
		q.enter(transport.Err)
	}
}
