package irdma

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A sendQueue is the send half of a QP. Requests are written to the ring at next, without their valid bits, and move
// it. Announce sets these bits, and copies next to at.
type sendQueue struct {
	ring  []quantum
	shift uint32 // binary logarithm of its length
	notes []note // by the first quantum of a request, or of NOPs
	chunk uint32 // quanta
	room  uint32 // how many requests can be outstanding
	at    place  // of the first request that has not been announced
	next  place  // of the request that is being written
	cur   request

	announced    atomic.Uint32 // at.requests
	announcedEnd atomic.Uint32 // at.quanta
	completed    atomic.Uint32 // requests polled so far. Polls change it, as they do tail
	tail         atomic.Uint32 // quanta of the requests polled so far
	ended        atomic.Bool   // the queue is flushed

	qp        *qp
	number    uint32
	typ       uverbs.QPType
	ops       *operations
	pd        *driver.PD
	owner     provider.QPOwner
	cq        *cq
	bell      *doorbell
	maxSGE    int
	maxRead   int // SGEs of a READ
	maxInline int
	signalAll bool
	udMTU     uint64 // the longest datagram that the port was known to send
}

// A place is where a request goes: how many quanta, and requests, precede it.
type place struct{ quanta, requests uint32 }

// A note is what a completion needs to know of its request.
type note struct {
	wrID    uint64
	at      place
	bytes   uint32
	quanta  uint16
	op      uverbs.WCOpcode
	padding bool // NOPs
}

// A request is what is known of the request at next. Nothing of it is in the ring before finish.
type request struct {
	op     *operation
	wrID   uint64
	header uint64
	third  uint64 // the third word: the peer's address, or a datagram's destination
	imm    uint32
	key    uint32 // to invalidate, of a LOCAL_INV
	total  uint64 // bytes
	sgl    []uverbs.SGE
	data   []byte // inline
	noDest error  // why it has no destination

	sges  [mostSGEs]uverbs.SGE // of a batch
	bytes [mostInline]byte     // as sges
}

// Start implements provider.Writer, as do the methods below.
func (s *sendQueue) Start(code uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) error {
	const flags = uverbs.Signaled | uverbs.Fence | uverbs.Solicited
	if code >= driver.Opcodes || !s.ops[code].there || f&^flags != 0 {
		return provider.Refusal(s.typ, code, f)
	}
	if s.next.requests-s.completed.Load() >= s.room {
		return uverbs.ErrQueueFull
	}
	o, r := &s.ops[code], &s.cur
	r.op, r.wrID, r.header, r.third, r.imm, r.key = o, wrID, o.hw, 0, 0, 0
	r.total, r.sgl, r.data, r.noDest = 0, r.sges[:0], nil, nil
	if f&uverbs.Solicited != 0 {
		r.header = o.solicited
	}
	if f&uverbs.Signaled != 0 || s.signalAll {
		r.header |= signaled
	}
	if f&uverbs.Fence != 0 {
		r.header |= fenced
	}
	switch {
	case o.traits&driver.OpRemote != 0:
		r.third, r.header = raddr, r.header|uint64(rkey)
	case o.traits&(driver.OpKey|driver.OpBare) == driver.OpKey|driver.OpBare:
		r.key = imm
	case o.traits&driver.OpKey != 0:
		r.header |= uint64(imm)
	case s.typ == uverbs.UD:
		r.noDest = uverbs.ErrNoAH
	}
	if o.traits&driver.OpImm != 0 {
		r.header, r.imm = r.header|withImm, imm
	}
	return nil
}

// most returns how many SGEs the request can have.
func (s *sendQueue) most() int {
	switch t := s.cur.op.traits; {
	case t&driver.OpBare != 0:
		return 0
	case t&driver.OpScatter != 0:
		return s.maxRead
	}
	return s.maxSGE
}

func (s *sendQueue) AddSGE(x uverbs.SGE) error {
	r := &s.cur
	switch {
	case len(r.data) > 0 || r.op.traits&driver.OpBare != 0:
		return uverbs.ErrMalformed
	case len(r.sgl) >= s.most():
		return uverbs.ErrTooManySGEs
	}
	r.sgl = append(r.sgl, x) // within sges
	return nil
}

func (s *sendQueue) SetInline(data []byte) error {
	if len(s.cur.data) > 0 {
		return uverbs.ErrMalformed
	}
	if err := s.checkInline(data); err != nil {
		return err
	}
	s.cur.data = s.cur.bytes[:copy(s.cur.bytes[:], data)]
	return nil
}

// checkInline returns the error of a request with data.
func (s *sendQueue) checkInline(data []byte) error {
	switch r := &s.cur; {
	case r.op.traits&(driver.OpScatter|driver.OpBare) != 0, len(r.sgl) > 0:
		return uverbs.ErrMalformed
	case len(data) > s.maxInline:
		return uverbs.ErrInlineTooLong
	}
	return nil
}

func (s *sendQueue) Address(ah *driver.AH, qpn, qkey uint32) error {
	av, err := ah.For(s.pd)
	switch {
	case err != nil:
		return err
	case s.typ != uverbs.UD:
		return uverbs.ErrQPType
	case qpn > numberMask:
		return uverbs.ErrMalformed
	}
	r := &s.cur
	r.third, r.header, r.noDest = uint64(qkey)|uint64(qpn)<<qpnAt, r.header&^ahMask|av[0], nil
	return nil
}

// SetOperands refuses: the device has no atomics.
func (s *sendQueue) SetOperands(uint64, uint64) error { return uverbs.ErrMalformed }

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

// check returns the error of a request that cannot be written, and computes its length.
func (s *sendQueue) check() error {
	r := &s.cur
	r.total = uint64(len(r.data))
	for i := range r.sgl {
		r.total += uint64(r.sgl[i].Length)
	}
	switch {
	case r.noDest != nil:
		return r.noDest
	case r.total > maxMessage:
		return uverbs.ErrRange
	case s.typ == uverbs.UD && r.total > s.udMTU:
		return s.tooLong()
	}
	return nil
}

func (s *sendQueue) Finish() error {
	if err := s.check(); err != nil {
		return err
	}
	r := &s.cur
	quanta := inlineQuanta(len(r.data))
	if len(r.data) == 0 {
		quanta = quantaFor(len(r.sgl) + int(r.header/withImm&1))
	}
	if !s.reserve(quanta) {
		return uverbs.ErrQueueFull
	}
	s.write(quanta)
	return nil
}

// mask is that of indices of the ring.
func (s *sendQueue) mask() uint32 { return uint32(len(s.ring)) - 1 }

// reserve moves next to where a request fits into one chunk. It returns false if the ring is full.
func (s *sendQueue) reserve(quanta uint32) bool {
	p := &s.next
	pad := s.chunk - p.quanta%s.chunk
	if quanta <= pad {
		pad = 0
	}
	if free := uint32(len(s.ring)) - (p.quanta - s.tail.Load()) - gap; int32(free) < int32(quanta+pad) {
		return false
	}
	if pad > 0 {
		at := p.quanta & s.mask()
		v := validOf(p.quanta, s.shift)
		for i := range pad {
			s.ring[at+i] = quantum{headerWord: hwNOP<<opcodeAt | v ^ valid}
		}
		s.notes[at] = note{at: *p, quanta: uint16(pad), padding: true}
		p.quanta += pad
	}
	return true
}

// write writes the request, which fits, and its note. The header's valid bit is that of the round before.
func (s *sendQueue) write(quanta uint32) {
	r, p := &s.cur, &s.next
	s.clearAhead()
	at := p.quanta & s.mask()
	v := validOf(p.quanta, s.shift)
	q := s.ring[at:][:quanta]
	first := int(r.header / withImm & 1)
	if first > 0 {
		q[0][0] = uint64(r.imm)
	}
	header := r.header
	switch {
	case len(r.data) > 0:
		setInlineData(q, r.data, v)
		header |= inlined | uint64(len(r.data))<<inlineLen
	case r.op.traits&driver.OpBare != 0:
		q[0][0], q[0][1] = 0, uint64(r.key)
	default:
		if len(r.sgl) == 0 && first == 0 {
			q[0][0], q[0][1] = 0, v
		}
		header |= setFragments(q, first, r.sgl, v)
	}
	q[0][2], q[0][headerWord] = r.third, header|v^valid
	s.notes[at] = note{wrID: r.wrID, at: *p, bytes: uint32(r.total), quanta: uint16(quanta), op: r.op.completion}
	p.quanta += quanta
	p.requests++
}

// clearAhead fills a page of the ring, ahead of a request that begins one, so that nothing in it is valid.
func (s *sendQueue) clearAhead() {
	if s.next.quanta%clearQuanta != 0 {
		return
	}
	ahead := s.next.quanta + clearQuanta
	fill := ^uint64(0)
	if validOf(ahead, s.shift) != 0 {
		fill = 0
	}
	page := s.ring[ahead&s.mask():][:clearQuanta]
	for i := range page {
		page[i] = quantum{fill, fill, fill, fill}
	}
}

// Announce makes requests valid and rings the doorbell, if any have been written.
func (s *sendQueue) Announce() error {
	if s.at == s.next {
		return nil
	}
	// A request that is valid can complete at once, so polls must know it before. They find requests up to announcedEnd,
	// and count them up to announced: that comes first.
	first, before := s.at.quanta, s.at.requests
	s.at = s.next
	s.announced.Store(s.at.requests)
	s.announcedEnd.Store(s.at.quanta)
	mmio.ToDevice()
	for c := first; c != s.at.quanta; {
		at := c & s.mask()
		n := uint32(s.notes[at].quanta)
		headers := uint32(1)
		if s.notes[at].padding {
			headers = n
		}
		for i := range headers {
			to := &s.ring[at+i][headerWord]
			mmio.Store64(to, *to^valid)
		}
		c += n
	}
	s.bell.ringSQ(s.number)
	if s.ended.Load() && s.completed.Load() == before { // the device has no entry left that flushes them
		return s.qp.flush(true, false)
	}
	return nil
}

// Drop makes sure that nothing of what was written can be taken for a header.
func (s *sendQueue) Drop() {
	for c := s.at.quanta; c != s.next.quanta; c++ {
		s.ring[c&s.mask()][headerWord] = validOf(c, s.shift) ^ valid
	}
	s.next = s.at
}

// outstanding returns how many requests have not completed.
func (s *sendQueue) outstanding() uint32 { return s.announced.Load() - s.completed.Load() }

// reset empties the queue. The driver moves a QP to its state ERROR instead of RESET: there the device goes on where it
// is in the ring.
func (s *sendQueue) reset() {
	s.Drop()
	s.tail.Store(s.at.quanta)
	s.completed.Store(s.at.requests)
}

// encode writes a request.
func (s *sendQueue) encode(wr *uverbs.SendWR) error {
	imm := wr.Imm
	if s.ops[wr.Opcode%driver.Opcodes].traits&driver.OpKey != 0 {
		imm = wr.InvalidateRKey
	}
	if err := s.Start(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, imm); err != nil {
		return err
	}
	r := &s.cur
	if s.typ == uverbs.UD {
		if err := s.Address(provider.AHOf(wr.AH), wr.QPN, wr.QKey); err != nil {
			return err
		}
	}
	switch {
	case len(wr.Inline) > 0 && len(wr.SGL) > 0:
		return uverbs.ErrMalformed
	case len(wr.Inline) > 0:
		if err := s.checkInline(wr.Inline); err != nil {
			return err
		}
	case len(wr.SGL) > s.most():
		return uverbs.ErrTooManySGEs
	}
	r.data, r.sgl = wr.Inline, wr.SGL
	return s.Finish()
}

// PostSend implements driver.QP.
func (q *qp) PostSend(wrs []uverbs.SendWR) (n int, err error) {
	s := &q.sq
	for ; n < len(wrs); n++ {
		if err = s.encode(&wrs[n]); err != nil {
			break
		}
	}
	if failure := s.Announce(); err == nil {
		err = failure
	}
	s.cur.sgl, s.cur.data = nil, nil // they are the caller's
	runtime.KeepAlive(q)
	return n, err
}
