package bnxt_re

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A sendQueue is the send half of a QP. Posts write requests to the ring, which the device reads when the doorbell
// has announced them, and move next; what they announce, they copy to at.
type sendQueue struct {
	ring     []slotWords
	table    []uint64 // of PSNs
	messages uint32   // size of the table by message; 0: it is by request
	size     uint32   // modulus of the numbers of requests
	fixed    bool     // each request has eight slots
	room     uint32   // how many requests can be outstanding
	at       place    // of the first request that has not been announced
	next     place    // of the request that is being written
	cur      request
	batch    batch

	notes     []note // by count; the length is a power of two
	announced atomic.Uint32
	completed atomic.Uint32 // requests polled so far. Polls change it, as they do last
	last      uint32        // the number of the first request that has not completed
	flushing  atomic.Bool   // the device has reported that it completes nothing any more
	final     uint16        // up to which request they have completed then, or noIndex
	good      uint32        // requests to flush that have completed

	number    uint32
	typ       uverbs.QPType
	ops       *operations
	kinds     [driver.Opcodes]uint8 // which operations PostSend handles itself
	flags     [8]uint64             // by uverbs.SendFlags
	pd        *driver.PD
	owner     provider.QPOwner
	cq        *cq
	bell      *doorbell
	maxSGE    int
	maxInline int
	signalAll bool
	mtu       uint32 // of the path, in bytes
	udMTU     uint64 // the longest datagram that the port was known to send
}

// A place is where a request goes.
type place struct {
	slot    uint32
	epoch   uint32 // changes when slot goes back to 0
	number  uint32 // of the request, modulo size
	count   uint32 // of requests so far
	psn     uint32
	message uint32 // entry of the table by message
}

// A note is what a completion needs to know of its request.
type note struct {
	wrID     uint64
	bytes    uint32
	op       uverbs.WCOpcode
	slot     uint16 // in which the request begins
	signaled bool
}

// A request is what is known of the request at next.
type request struct {
	op     *operation
	code   uverbs.Opcode
	wrID   uint64
	flags  uint64 // and immediate data, or the key of an atomic
	first  uint64 // the remote address of an atomic, or the Q_Key
	total  uint64 // bytes
	sges   int
	data   uint32 // slots of inline data
	noDest error  // why it has no destination
}

// start begins a request.
func (s *sendQueue) start(code uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) error {
	const flags = uverbs.Signaled | uverbs.Fence | uverbs.Solicited
	if code >= driver.Opcodes || !s.ops[code].there || f&^flags != 0 {
		return provider.Refusal(s.typ, code, f)
	}
	if s.next.count-s.completed.Load() >= s.room {
		return uverbs.ErrQueueFull
	}
	if s.signalAll {
		f |= uverbs.Signaled
	}
	o := &s.ops[code]
	s.cur = request{op: o, code: code, wrID: wrID, flags: flagsOf(f)}
	second := s.slot(1)
	*second = slotWords{}
	switch {
	case o.traits&driver.OpOperands != 0:
		s.cur.flags |= uint64(rkey) << immAt
		s.cur.first = raddr
	case o.traits&driver.OpRemote != 0:
		*second = slotWords{raddr, uint64(rkey)}
	case s.typ == uverbs.UD:
		s.cur.noDest = uverbs.ErrNoAH
	}
	if o.traits&driver.OpImm != 0 {
		s.cur.flags |= uint64(imm) << immAt
	}
	return nil
}

// slot returns a slot of the request.
func (s *sendQueue) slot(i uint32) *slotWords {
	if i += s.next.slot; i >= uint32(len(s.ring)) {
		i -= uint32(len(s.ring))
	}
	return &s.ring[i]
}

// addSGE adds an SGE to the request.
func (s *sendQueue) addSGE(x *uverbs.SGE) error {
	r := &s.cur
	total := r.total + uint64(x.Length)
	switch {
	case r.data > 0:
		return uverbs.ErrMalformed
	case r.sges >= s.maxSGE:
		return uverbs.ErrTooManySGEs
	case total > uverbs.MaxMessage:
		return uverbs.ErrRange
	}
	s.slot(headSlots + uint32(r.sges)).setSGE(x)
	r.sges, r.total = r.sges+1, total
	return nil
}

// setInline sets the data of the request, which is not empty.
func (s *sendQueue) setInline(data []byte) error {
	r := &s.cur
	switch {
	case r.op.traits&driver.OpScatter != 0, r.sges > 0, r.data > 0:
		return uverbs.ErrMalformed
	case len(data) > s.maxInline:
		return uverbs.ErrInlineTooLong
	}
	r.total, r.flags = uint64(len(data)), r.flags|inlined
	for ; len(data) > 0; r.data++ {
		to := s.slot(headSlots + r.data)
		*to = slotWords{}
		data = data[copy(to.bytesOf()[:], data):]
	}
	return nil
}

// address sets the destination.
func (s *sendQueue) address(ah *driver.AH, qpn, qkey uint32) error {
	av, err := ah.For(s.pd)
	switch {
	case err != nil:
		return err
	case s.typ != uverbs.UD:
		return uverbs.ErrQPType
	}
	s.slot(1)[0] = uint64(qpn) | av[0]<<32
	s.cur.first, s.cur.noDest = uint64(qkey)<<32, nil
	return nil
}

// tooLong returns the error of a datagram that is longer than the MTU of the port. It may have been raised.
func (s *sendQueue) tooLong() error {
	if s.owner != nil {
		s.udMTU = s.owner.MTU()
	}
	if s.cur.total > s.udMTU {
		return uverbs.ErrTooLong
	}
	return nil
}

// check returns the error of a request that is not complete.
func (s *sendQueue) check() error {
	switch r := &s.cur; {
	case r.noDest != nil:
		return r.noDest
	case r.op.traits&driver.OpOperands != 0 && r.total != 8:
		return uverbs.ErrAtomicSize
	case r.op.traits&driver.OpOperands != 0 && r.sges != 1:
		return uverbs.ErrTooManySGEs
	case s.typ == uverbs.UD && r.total > s.udMTU:
		return s.tooLong()
	}
	return nil
}

// finish writes the headers of the request, its PSNs and its note, and moves next.
func (s *sendQueue) finish() error {
	if err := s.check(); err != nil {
		return err
	}
	r, p := &s.cur, &s.next
	slots := headSlots + uint32(r.sges) + r.data
	first := r.first
	if r.op.traits&driver.OpOperands == 0 {
		first |= r.total
	}
	*s.slot(0) = slotWords{r.op.hw | r.flags | uint64(slots)<<slotsAt, first}
	if s.typ == uverbs.RC {
		s.writePSN(r.code, uint32(r.total))
	}
	s.added(note{r.wrID, uint32(r.total), r.op.completion, uint16(p.slot), r.flags&signaled != 0}, slots)
	return nil
}

// added adds a note of the request that has been written, and moves next.
func (s *sendQueue) added(x note, slots uint32) {
	p := &s.next
	*s.note(p.count) = x
	if s.fixed {
		slots = fixedSlots
	}
	p.count++
	if p.number++; p.number == s.size {
		p.number = 0
	}
	if p.slot += slots; p.slot >= uint32(len(s.ring)) {
		p.slot -= uint32(len(s.ring))
		p.epoch ^= 1
	}
}

const psnMask = 1<<24 - 1

// index returns how doorbells and the table of PSNs name a place.
func (s *sendQueue) index(p *place) uint32 {
	if s.fixed {
		return p.number
	}
	return p.slot
}

// writePSN writes the numbers of the first packet of the request and of the one after it.
//
//go:nosplit
func (s *sendQueue) writePSN(code uverbs.Opcode, n uint32) {
	p := &s.next
	packets := uint32(1)
	if n > s.mtu { // up to 2^31
		packets = (n-1)/s.mtu + 1
	}
	first, next := p.psn&psnMask, (p.psn+packets)&psnMask
	p.psn = next
	at := s.index(p)
	if s.messages > 0 {
		s.table[p.message] = uint64(first) | uint64(next)<<24 | uint64(at)<<48
		if p.message++; p.message == s.messages {
			p.message = 0
		}
		return
	}
	s.table[2*at] = uint64(first) | uint64(code)<<24 | uint64(next)<<32
	s.table[2*at+1] = uint64(uint16(at))
}

// announce rings the doorbell if requests have been written.
//
//go:nosplit
func (s *sendQueue) announce() {
	if s.at.count == s.next.count {
		return
	}
	s.at = s.next
	s.announced.Store(s.at.count)
	s.bell.ring(ringSQ, s.number, s.index(&s.at), s.at.epoch, 0)
	if s.flushing.Load() { // the device has no completion for them
		s.cq.wakeUp()
	}
}

// reset empties the queue. As in C's library, epochs and the table by message go on where they were.
func (s *sendQueue) reset() {
	s.at = place{epoch: s.at.epoch, psn: s.at.psn, message: s.at.message}
	s.next, s.batch, s.last = s.at, batch{}, 0
	s.announced.Store(0)
	s.completed.Store(0)
	s.flushing.Store(false)
	s.final, s.good = noIndex, 0
}

// outstanding returns how many requests have not completed.
func (s *sendQueue) outstanding() uint32 { return s.announced.Load() - s.completed.Load() }

// encode writes a request.
func (s *sendQueue) encode(wr *uverbs.SendWR) error {
	if err := s.start(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.Imm); err != nil {
		return err
	}
	if s.cur.op.traits&driver.OpOperands != 0 {
		s.operands(wr.CompareAdd, wr.Swap)
	}
	if len(wr.Inline) > 0 {
		if err := s.setInline(wr.Inline); err != nil {
			return err
		}
	}
	for i := range wr.SGL {
		if err := s.addSGE(&wr.SGL[i]); err != nil {
			return err
		}
	}
	if s.typ == uverbs.UD {
		if err := s.address(provider.AHOf(wr.AH), wr.QPN, wr.QKey); err != nil {
			return err
		}
	}
	return s.finish()
}

// operands sets those of an atomic.
func (s *sendQueue) operands(compareAdd, swap uint64) {
	if s.cur.op.hw == hwFetchAdd {
		compareAdd, swap = 0, compareAdd
	}
	*s.slot(1) = slotWords{swap, compareAdd}
}

// postAny continues a PostSend that has written n requests and has not announced them.
//
//go:noinline
func (q *qp) postAny(wrs []uverbs.SendWR, n int) (_ int, err error) {
	s := &q.sq
	for ; n < len(wrs); n++ {
		if err = s.encode(&wrs[n]); err != nil {
			break
		}
	}
	s.announce()
	runtime.KeepAlive(q)
	return n, err
}

// The requests that PostSend writes itself, in sendQueue.kinds.
const (
	simple       = 1 << iota // SENDs and WRITEs of an RC queue pair
	simpleRemote             // WRITEs
	simpleImm
)

// setSimple fills in kinds and flags.
func (s *sendQueue) setSimple() {
	for i, o := range s.ops {
		if !o.there || s.typ != uverbs.RC || s.maxSGE == 0 || o.traits&(driver.OpOperands|driver.OpScatter) != 0 {
			continue
		}
		s.kinds[i] = simple
		if o.traits&driver.OpRemote != 0 {
			s.kinds[i] |= simpleRemote
		}
		if o.traits&driver.OpImm != 0 {
			s.kinds[i] |= simpleImm
		}
	}
	for f := range s.flags {
		s.flags[f] = flagsOf(uverbs.SendFlags(f))
		if s.signalAll {
			s.flags[f] |= signaled
		}
	}
}

// PostSend implements driver.QP. The loop writes requests with one SGE or with inline data. It leaves the rest of the
// list to postAny at the first other request.
//
//go:nosplit
func (q *qp) PostSend(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	p := &s.next
	for n := range wrs {
		wr := &wrs[n]
		kind, completed := s.kinds[wr.Opcode%driver.Opcodes], s.completed.Load()
		if wr.Opcode >= driver.Opcodes || kind == 0 || int(wr.Flags) >= len(s.flags) || p.count-completed >= s.room {
			return q.postAny(wrs, n)
		}
		total, slots := uint32(len(wr.Inline)), uint32(headSlots+1)
		first := s.flags[wr.Flags]
		if total > 0 {
			slots = headSlots + (total+slotSize-1)/slotSize
			if len(wr.SGL) > 0 || int(total) > s.maxInline || p.slot+slots > uint32(len(s.ring)) {
				return q.postAny(wrs, n)
			}
			s.head(p.slot).setInline(wr.Inline)
			first |= inlined
		} else {
			if len(wr.SGL) != 1 || wr.SGL[0].Length > uverbs.MaxMessage || p.slot+slots > uint32(len(s.ring)) {
				return q.postAny(wrs, n)
			}
			total = wr.SGL[0].Length
			s.head(p.slot)[2].setSGE(&wr.SGL[0])
		}
		h := s.head(p.slot)
		if h[1] = (slotWords{}); kind&simpleRemote != 0 {
			h[1] = slotWords{wr.RemoteAddr, uint64(wr.RKey)}
		}
		if kind&simpleImm != 0 {
			first |= uint64(wr.Imm) << immAt
		}
		o := &s.ops[wr.Opcode%driver.Opcodes]
		h[0] = slotWords{o.hw | first | uint64(slots)<<slotsAt, uint64(total)}
		s.writePSN(wr.Opcode, total)
		s.added(note{wr.WRID, total, o.completion, uint16(p.slot), first&signaled != 0}, slots)
	}
	s.announce()
	runtime.KeepAlive(q)
	return len(wrs), nil
}
