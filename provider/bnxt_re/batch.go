package bnxt_re

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A batch is the requests that were added since Begin. They are in the ring, and the device does not know of them.
type batch struct {
	open bool  // a request has been started
	err  error // the first error
}

// Begin implements driver.QP, as do the methods below.
func (q *qp) Begin() { q.Abort() }

// Abort forgets the requests.
func (q *qp) Abort() { q.sq.next, q.sq.batch = q.sq.at, batch{} }

// end ends the request that was added last.
func (s *sendQueue) end() {
	if b := &s.batch; b.err == nil && b.open {
		b.err = s.finish()
		b.open = false
	}
}

func (q *qp) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	s := &q.sq
	s.end()
	if b := &s.batch; b.err == nil {
		b.err = s.start(op, f, wrID, raddr, rkey, imm)
		b.open = b.err == nil
	}
}

// missing reports whether there is no request to complete, which is an error.
func (s *sendQueue) missing() bool {
	b := &s.batch
	if b.err == nil && !b.open {
		b.err = uverbs.ErrMalformed
	}
	return b.err != nil
}

func (q *qp) SGE(sge uverbs.SGE) {
	if s := &q.sq; !s.missing() {
		s.batch.err = s.addSGE(&sge)
	}
}

// Inline sets the last request's data. It may be called once. Empty data is the same as no call.
func (q *qp) Inline(data []byte) {
	s := &q.sq
	if s.missing() {
		return
	}
	if s.cur.sges > 0 || s.cur.data > 0 {
		s.batch.err = uverbs.ErrMalformed
	} else if len(data) > 0 {
		s.batch.err = s.setInline(data)
	}
}

// UDAddr implements driver.QP.
func (q *qp) UDAddr(ah *driver.AH, qpn, qkey uint32) {
	if s := &q.sq; !s.missing() {
		s.batch.err = s.address(ah, qpn, qkey)
	}
}

// Atomic implements driver.QP.
func (q *qp) Atomic(compareAdd, swap uint64) {
	s := &q.sq
	if s.missing() {
		return
	}
	if s.cur.op.traits&driver.OpOperands == 0 {
		s.batch.err = uverbs.ErrMalformed
		return
	}
	s.operands(compareAdd, swap)
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

// Bind is for operations that this package does not have, as is Flush.
func (q *qp) Bind(driver.Bind, error) { q.foreign(uverbs.ErrMalformed) }

// Flush implements driver.QP.
func (q *qp) Flush(uint32, uint8, uint8) { q.foreign(uverbs.ErrMalformed) }

// RemoteSRQ is for XRC, and DCAddr for DC, which the device does not have.
func (q *qp) RemoteSRQ(uint32) { q.foreign(uverbs.ErrQPType) }

// DCAddr implements driver.QP.
func (q *qp) DCAddr(*driver.AH, uint32, uint64, uint16) { q.foreign(uverbs.ErrQPType) }

// Submit announces the requests.
func (q *qp) Submit() error {
	s := &q.sq
	s.end()
	if err := s.batch.err; err != nil {
		q.Abort()
		return err
	}
	s.announce()
	s.batch = batch{}
	runtime.KeepAlive(q)
	return nil
}
