package efa

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A batch is the requests that were added since Begin. They are in sendQueue.local until Submit.
type batch struct {
	n          uint32     // number of requests
	op         *operation // of the last request; nil if there is none
	data       bool       // the last request has inline data
	incomplete error      // the error if the last request gets no destination
	sges       int        // of the last request
	total      uint64     // bytes of the last request
	err        error      // the first error
}

// Begin implements driver.QP, as do the methods below.
func (q *qp) Begin() { q.Abort() }

// Abort forgets the requests: Submit takes their numbers.
func (q *qp) Abort() { q.sq.batch = batch{} }

func (q *qp) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	s := &q.sq
	b := &s.batch
	if b.err != nil {
		return
	}
	o, err := s.operation(op, f)
	switch {
	case err != nil:
		b.err = err
		return
	case b.incomplete != nil:
		b.err = b.incomplete
		return
	case s.full(b.n):
		b.err = uverbs.ErrQueueFull
		return
	}
	w := &s.local[b.n]
	s.start(w, o, b.n, imm)
	w[0] |= uint64(s.id(b.n, wrID))
	if o.traits&driver.OpRemote != 0 {
		w.setRemote(0, rkey, raddr)
	}
	*b = batch{n: b.n + 1, op: o, incomplete: uverbs.ErrNoAH}
}

// last returns the request that was added last.
func (s *sendQueue) last() *sendWQE { return &s.local[s.batch.n-1] }

func (q *qp) SGE(sge uverbs.SGE) {
	s := &q.sq
	b := &s.batch
	if b.err != nil {
		return
	}
	if b.op == nil || b.data {
		b.err = uverbs.ErrMalformed
		return
	}
	at, most, bytes := s.limits(b.op)
	total := b.total + uint64(sge.Length)
	switch {
	case b.sges >= most:
		b.err = uverbs.ErrTooManySGEs
		return
	case total > bytes:
		b.err = uverbs.ErrRange
		return
	}
	w := s.last()
	w.setSGE(at+2*b.sges, &sge)
	if b.op.traits&driver.OpRemote != 0 {
		w[4] = w[4]&^0xffffffff | total
	}
	b.sges, b.total = b.sges+1, total
	w.setCount(b.sges)
}

// Inline sets the last request's data. It may be called once. Empty data is the same as no call.
func (q *qp) Inline(data []byte) {
	s := &q.sq
	b := &s.batch
	switch {
	case b.err != nil:
		return
	case b.op == nil || b.data || b.sges > 0:
		b.err = uverbs.ErrMalformed
		return
	case len(data) == 0:
		return
	}
	b.err = s.setInline(s.last(), b.op, data)
	b.data = true
}

func (q *qp) UDAddr(ah *driver.AH, qpn, qkey uint32) {
	s := &q.sq
	b := &s.batch
	switch {
	case b.err != nil:
		return
	case b.op == nil:
		b.err = uverbs.ErrMalformed
		return
	}
	b.err = s.address(s.last(), ah, qpn, qkey)
	b.incomplete = nil
}

// OpSGE implements driver.QP.
func (q *qp) OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, s uverbs.SGE) {
	q.Op(op, f, wrID, raddr, rkey, 0)
	q.SGE(s)
}

// OpInline implements driver.QP.
func (q *qp) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	q.Op(op, f, wrID, raddr, rkey, 0)
	q.Inline(data)
}

// foreign records that a call is for other operations or types of QP.
func (q *qp) foreign(err error) {
	if b := &q.sq.batch; b.err == nil {
		b.err = err
	}
}

// Atomic is for operations that an EFA does not have, as are Bind and Flush.
func (q *qp) Atomic(uint64, uint64) { q.foreign(uverbs.ErrMalformed) }

// Bind implements driver.QP.
func (q *qp) Bind(driver.Bind, error) { q.foreign(uverbs.ErrMalformed) }

// Flush implements driver.QP.
func (q *qp) Flush(uint32, uint8, uint8) { q.foreign(uverbs.ErrMalformed) }

// RemoteSRQ is for XRC, and DCAddr for DC, which an EFA does not have.
func (q *qp) RemoteSRQ(uint32) { q.foreign(uverbs.ErrQPType) }

// DCAddr implements driver.QP.
func (q *qp) DCAddr(*driver.AH, uint32, uint64, uint16) { q.foreign(uverbs.ErrQPType) }

// Submit copies the requests to the device.
func (q *qp) Submit() error {
	s := &q.sq
	b := &s.batch
	err := b.err
	if err == nil {
		err = b.incomplete
	}
	if s.ended {
		err = errEnded
	}
	if err != nil {
		q.Abort()
		return err
	}
	mmio.WCStart()
	for i := range b.n {
		s.take()
		s.write(&s.local[i])
	}
	s.announce()
	s.batch = batch{}
	runtime.KeepAlive(q)
	return nil
}
