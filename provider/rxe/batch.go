package rxe

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A batch is written directly to the ring, after the published index, where the
// kernel does not look. Submit publishes all of it. To drop a batch it is enough to
// reset this struct.
type batch struct {
	next       uint32          // index of the element after the last operation
	last       uint32          // index of the last operation's element
	traits     driver.OpTraits // traits of the last operation; 0 if there is none
	op         uverbs.Opcode
	data       bool   // the last operation has inline data
	incomplete error  // the error if the last operation is not completed
	sges       int    // of the last operation
	total      uint64 // bytes of the last operation
	rkey       uint32 // of the last operation
	err        error  // the first error
}

// Begin implements driver.QP, as do the methods below.
func (q *qp) Begin() {
	q.sq.batch = batch{next: q.sq.cur}
}

func (q *qp) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	s := &q.sq
	b := &s.batch
	if b.err != nil {
		return
	}
	has := s.ops.traits(op, f)
	if has == 0 {
		b.err = s.refusal(op, f)
		return
	}
	if b.incomplete != nil {
		b.err = b.incomplete
		return
	}
	if s.full(b.next) {
		b.err = uverbs.ErrQueueFull
		return
	}
	s.sendWQE(b.next).start(has, op, f, wrID, raddr, rkey, imm)
	b.last, b.next = b.next, s.next(b.next)
	b.traits, b.op, b.data, b.sges, b.total, b.rkey = has, op, false, 0, 0, rkey
	switch {
	case has&datagram != 0:
		b.incomplete = uverbs.ErrNoAH
	case has&driver.OpOperands != 0:
		b.incomplete = uverbs.ErrAtomicSize
	case op == uverbs.OpBindMW:
		b.incomplete = uverbs.ErrNoMW
	}
	runtime.KeepAlive(q)
}

func (q *qp) SGE(sge uverbs.SGE) {
	s := &q.sq
	b := &s.batch
	if b.err != nil {
		return
	}
	n, total := b.sges, b.total+uint64(sge.Length)
	switch {
	case b.traits == 0 || b.traits&driver.OpBare != 0 || b.data:
		b.err = uverbs.ErrMalformed
		return
	case n >= s.maxSGE:
		b.err = uverbs.ErrTooManySGEs
		return
	case total > s.maxMessage:
		if b.err = s.tooLong(total); b.err != nil {
			return
		}
	}
	w := s.sendWQE(b.last)
	w.sges(n + 1)[n] = sge
	w.setSGEs(n+1, total)
	b.sges, b.total = n+1, total
	if b.traits&driver.OpOperands != 0 {
		b.incomplete = nil
		if total != atomicSize {
			b.incomplete = uverbs.ErrAtomicSize
		}
	}
	runtime.KeepAlive(q)
}

// Inline sets the last operation's data. It may be called once. Empty data is the
// same as no call.
func (q *qp) Inline(data []byte) {
	s := &q.sq
	b := &s.batch
	if b.err != nil {
		return
	}
	switch {
	case b.traits == 0 || b.traits&(driver.OpScatter|driver.OpBare) != 0 && len(data) > 0 || b.data || b.sges > 0:
		b.err = uverbs.ErrMalformed
		return
	case len(data) > s.maxInline:
		b.err = uverbs.ErrInlineTooLong
		return
	case len(data) == 0:
		return
	case uint64(len(data)) > s.maxMessage:
		if b.err = s.tooLong(uint64(len(data))); b.err != nil {
			return
		}
	}
	s.sendWQE(b.last).setInline(data)
	b.data = true
	runtime.KeepAlive(q)
}

func (q *qp) UDAddr(ah *driver.AH, qpn, qkey uint32) {
	s := &q.sq
	b := &s.batch
	if b.err != nil {
		return
	}
	switch {
	case s.typ != uverbs.UD:
		b.err = uverbs.ErrQPType
		return
	case b.traits == 0:
		b.err = uverbs.ErrMalformed
		return
	}
	b.err = s.address(s.sendWQE(b.last), ah, qpn, qkey)
	b.incomplete = nil
	runtime.KeepAlive(q)
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

// RemoteSRQ is for XRC, which rxe does not have.
func (q *qp) RemoteSRQ(uint32) {
	if b := &q.sq.batch; b.err == nil {
		b.err = uverbs.ErrQPType
	}
}

// DCAddr is for DC, which rxe does not have.
func (q *qp) DCAddr(*driver.AH, uint32, uint64, uint16) {
	if b := &q.sq.batch; b.err == nil {
		b.err = uverbs.ErrQPType
	}
}

// Submit posts nothing if an operation was wrong. If the kernel refuses the
// doorbell, the requests are posted: see PostSend.
func (q *qp) Submit() error {
	s := &q.sq
	err, next := s.batch.err, s.batch.next
	if err == nil {
		err = s.batch.incomplete
	}
	q.Begin()
	if err != nil {
		return err
	}
	if err := s.submit(next); err != nil {
		return q.bellError(err)
	}
	s.batch.next = s.cur
	runtime.KeepAlive(q)
	return nil
}

func (q *qp) Abort() { q.Begin() }

// SetRdAtomic implements driver.RdAtomic.
func (q *qp) SetRdAtomic(n uint8) { q.sq.setDepth(n) }
