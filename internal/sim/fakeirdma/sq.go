package fakeirdma

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
)

// A ring is a queue whose requests say that they are there with a valid bit.
type ring struct {
	memory devfile.Memory
	addr   uint64
	size   uint32 // a power of two
	stride uint32 // quanta
	next   uint32 // the first place that the device has not read. It only increases
	known  uint32 // the first place that was not announced
}

const validAt = 31 // the byte of a quantum with the valid bit

// there returns the first quantum of a place that was announced.
func (r *ring) there(place uint32) (quantum []byte, ok bool) {
	if int32(r.known-place) <= 0 {
		return nil, false
	}
	b, ok := r.read(place, 1)
	return b, ok && r.isValid(place, b)
}

// isValid reports whether the valid bit of a quantum is the one of a place.
func (r *ring) isValid(place uint32, quantum []byte) bool {
	return quantum[validAt]>>7 == byte(^(place/r.size)&1)
}

// read reads n places from one on.
func (r *ring) read(place, n uint32) ([]byte, bool) {
	b := make([]byte, n*r.stride*quantumSize)
	return b, r.memory.Read(r.addr+uint64(place%r.size*r.stride*quantumSize), b)
}

// A sendRing is a send queue, whose places are quanta.
type sendRing struct {
	ring
	recorded []*wqe // that have been read for Record and have not completed
	busy     int    // requests that the device has read and taken back
}

// A wqe is a request as the program has written it.
type wqe struct {
	raw      []byte
	place    uint32
	signaled bool
	op       byte
	sges     []fakedev.SGE
	inline   []byte
	bad      transport.Syndrome
	request  transport.Request
}

// Operations.
const (
	opWrite      = 0x00
	opRead       = 0x01
	opSend       = 0x03
	opSendInv    = 0x04
	opSendSol    = 0x05
	opSendSolInv = 0x06
	opLocalInv   = 0x0a
	opNOP        = 0x0c
	opWriteSol   = 0x0d
)

// Fields of a request's header.
const (
	headerAt     = 24
	wqeOpAt      = 32
	wqeOpMask    = 1<<6 - 1
	wqeFragsAt   = 38
	wqeFragsMask = 1<<4 - 1
	wqeImm       = 1 << 47
	wqeInlineAt  = 48
	wqeInline    = 1 << 57
	wqeFence     = 1 << 60
	wqeSignaled  = 1 << 62
	ahMask       = 1<<17 - 1
	inlineFirst  = 8
	inlineStep   = 31
)

// An operation is what the opcode of a request says.
type operation struct {
	op        transport.Op
	solicited bool
}

var operations = map[byte]operation{opWrite: {transport.Write, false}, opWriteSol: {transport.Write, true},
	opRead: {transport.Read, false}, opSend: {transport.Send, false}, opSendSol: {transport.Send, true},
	opSendInv: {transport.SendInval, false}, opSendSolInv: {transport.SendInval, true}}

// quanta returns how many quanta a request has, by its header.
func quanta(header uint64) uint32 {
	n := uint32(header>>wqeInlineAt) & 0xff
	switch {
	case header&wqeInline == 0:
		return 1 + uint32(header>>wqeFragsAt&wqeFragsMask+1)/2
	case n <= inlineFirst:
		return 1
	}
	return 1 + (n-inlineFirst+inlineStep-1)/inlineStep
}

// fetch reads the next request, or returns nil if there is none. It skips NOPs.
func (q *qp) fetch() *wqe {
	s := &q.sq
	for range s.size {
		first, ok := s.there(s.next)
		if !ok {
			return nil
		}
		header := binary.LittleEndian.Uint64(first[headerAt:])
		w := &wqe{place: s.next, op: byte(header >> wqeOpAt & wqeOpMask)}
		n := quanta(header)
		if at := s.next % chunk; w.op != opNOP && at+n > chunk {
			q.kernel.Problem("QP %d: a request of %d quanta at %d of a chunk", q.Number, n, at)
			q.Fatal()
			return nil
		}
		if w.op == opNOP {
			n = 1
		}
		if w.raw, ok = s.read(s.next, n); !ok {
			return nil
		}
		for i := range n {
			if !s.isValid(s.next, w.raw[i*quantumSize:]) {
				q.kernel.Problem("QP %d: quantum %d of the request at %d is not valid", q.Number, i, s.next)
			}
		}
		q.dev.Record("SQ %d %s", s.next%s.size, hex.EncodeToString(w.raw))
		s.next += n
		if w.op != opNOP {
			q.decode(w, header)
			return w
		}
	}
	return nil
}

// drain reads all requests. It returns how many there are, with those that the device has taken back.
func (s *sendRing) drain() (n int) {
	n, s.busy = s.busy, 0
	for range s.size {
		first, ok := s.there(s.next)
		if !ok {
			break
		}
		size, nop := extent(first)
		if s.next += size; !nop {
			n++
		}
	}
	return n
}

// extent returns how many quanta the request has that begins with a quantum.
func extent(first []byte) (n uint32, nop bool) {
	header := binary.LittleEndian.Uint64(first[headerAt:])
	if header>>wqeOpAt&wqeOpMask == opNOP {
		return 1, true
	}
	return quanta(header), false
}

// announce notes the requests that are valid.
func (s *sendRing) announce() {
	for range s.size {
		first, ok := s.read(s.known, 1)
		if !ok || !s.isValid(s.known, first) {
			break
		}
		n, _ := extent(first)
		s.known += n
	}
}

// decode interprets a request.
func (q *qp) decode(w *wqe, header uint64) {
	le := binary.LittleEndian
	w.signaled = header&wqeSignaled != 0
	o, known := operations[w.op]
	r := &w.request
	third := le.Uint64(w.raw[16:])
	*r = transport.Request{Op: o.op, Solicited: o.solicited, Fence: header&wqeFence != 0, WQE: w}
	if header&wqeImm != 0 {
		r.Imm = le.Uint32(w.raw)
		r.Op = map[transport.Op]transport.Op{transport.Send: transport.SendImm, transport.Write: transport.WriteImm}[o.op]
	}
	switch {
	case !known || q.UD && r.Op != transport.Send && r.Op != transport.SendImm:
		w.bad = transport.LocalQPOp
	case r.Op == transport.SendInval:
		r.Imm = uint32(header)
	case r.Op == transport.Write || r.Op == transport.WriteImm || r.Op == transport.Read:
		r.RemoteAddr, r.RKey = third, uint32(header)
	case q.UD:
		a := q.dev.AHs[uint32(header)&ahMask]
		if a == nil || a.PD != q.PD {
			w.bad = transport.LocalQPOp
			break
		}
		r.Dest = &transport.Dest{Path: a.Path, QPN: uint32(third >> 32), QKey: uint32(third)}
	}
	w.data(header)
	if w.bad != transport.OK {
		*r = transport.Request{Op: transport.Local, WQE: w}
	}
}

// sgesOf decodes n SGEs, without the one in place of immediate data.
func sgesOf(b []byte, n int, imm bool) (all []fakedev.SGE) {
	le := binary.LittleEndian
	for i := range n {
		at := 16 * (i + 1) // the first quantum has one, and the headers
		if i == 0 {
			at = 0
		}
		if i > 0 || !imm {
			n := le.Uint32(b[at+12:]) &^ (1 << 31) // the valid bit
			all = append(all, fakedev.SGE{Addr: le.Uint64(b[at:]), Key: le.Uint32(b[at+8:]), N: n})
		}
	}
	return all
}

// data decodes the SGEs or the inline data.
func (w *wqe) data(header uint64) {
	r := &w.request
	if header&wqeInline != 0 {
		n := int(header >> wqeInlineAt & 0xff)
		w.inline = append([]byte{}, w.raw[8:16]...)
		for b := w.raw[quantumSize:]; len(b) > 0; b = b[quantumSize:] {
			w.inline = append(w.inline, b[:inlineStep]...)
		}
		if n > maxInline {
			w.bad = transport.LocalLength
			return
		}
		w.inline, r.Length = w.inline[:n], uint32(n)
		return
	}
	w.sges = sgesOf(w.raw, int(header>>wqeFragsAt&wqeFragsMask)+1, header&wqeImm != 0)
	total := uint64(0)
	for _, x := range w.sges {
		total += uint64(x.N)
	}
	if total > maxMessage {
		w.bad = transport.LocalLength
	}
	r.Length = uint32(total)
}

// bell is called with a doorbell of the send queue.
func (q *qp) bell() {
	q.sq.announce()
	if !q.dev.Recording() {
		q.Endpoint.Kick()
		return
	}
	for w := q.fetch(); w != nil; w = q.fetch() {
		q.sq.recorded = append(q.sq.recorded, w)
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

// Scatter stores the data of a READ.
func (q *qp) Scatter(r *transport.Request, off uint32, p []byte) transport.Syndrome {
	return q.dev.ScatterResponse(q.PD, r.WQE.(*wqe).sges, r.Op, off, p)
}

// Execute returns the error of a request that the device does not know.
func (q *qp) Execute(r *transport.Request) transport.Syndrome { return r.WQE.(*wqe).bad }

// sent returns the entry of a send that has completed.
func (q *qp) sent(w *wqe) *entry {
	return q.entry(flagSend | uint64(w.place%q.sq.size)<<indexAt | uint64(w.op)<<opAt)
}

// Done completes a request.
func (q *qp) Done(r *transport.Request, s transport.Syndrome) {
	w := r.WQE.(*wqe)
	if s != transport.OK {
		q.sendCode, q.sq.busy = flushCodes[s], q.sq.busy+1
		q.enter(transport.Err)
		return
	}
	if w.signaled {
		q.send.complete(q.sent(w), nil)
	}
}
