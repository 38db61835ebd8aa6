package siw

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A batch collects one request at a time and writes it to the ring when the next one begins. Submit publishes all of
// them.
type batch struct {
	wr   uverbs.SendWR // the operation that was added last
	open bool          // there is one
	next uint32        // the element for it
	err  error         // the first error
	sgl  [uapi.SIW_MAX_SGE]uverbs.SGE
	data [maxInline]byte
}

// Begin implements driver.QP, as do the methods below.
func (q *qp) Begin() { q.batch.open, q.batch.next, q.batch.err = false, q.sq.cur, nil }

// finish writes the last operation to the ring.
func (q *qp) finish() {
	b := &q.batch
	if b.open && b.err == nil {
		b.err = q.encode(b.next, &b.wr)
		b.next++
	}
	b.open = false
}

func (q *qp) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	q.finish()
	b := &q.batch
	if b.err == nil {
		_, b.err = q.operation(op, f)
	}
	b.open = b.err == nil
	b.wr = uverbs.SendWR{WRID: wrID, Opcode: op, Flags: f, RemoteAddr: raddr, RKey: rkey, InvalidateRKey: imm}
}

// fail sets the first error.
func (q *qp) fail(err error) {
	if q.batch.err == nil {
		q.batch.err = err
	}
}

func (q *qp) SGE(s uverbs.SGE) {
	b := &q.batch
	n := len(b.wr.SGL)
	switch {
	case !b.open || len(b.wr.Inline) > 0:
		q.fail(uverbs.ErrMalformed)
	case n >= q.maxSGE:
		q.fail(uverbs.ErrTooManySGEs)
	default:
		b.sgl[n] = s
		b.wr.SGL = b.sgl[:n+1]
	}
}

// Inline sets the last operation's data. It may be called once. Empty data is the
// same as no call.
func (q *qp) Inline(data []byte) {
	b := &q.batch
	switch {
	case !b.open || len(b.wr.SGL)+len(b.wr.Inline) > 0:
		q.fail(uverbs.ErrMalformed)
	case len(data) > q.maxInline:
		q.fail(uverbs.ErrInlineTooLong)
	default:
		b.wr.Inline = b.data[:copy(b.data[:], data)]
	}
}

func (q *qp) OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, s uverbs.SGE) {
	q.Op(op, f, wrID, raddr, rkey, 0)
	q.SGE(s)
}

func (q *qp) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	q.Op(op, f, wrID, raddr, rkey, 0)
	q.Inline(data)
}

// Atomic, Bind and Flush complete operations that siw does not have, so Op has refused them.
func (q *qp) Atomic(uint64, uint64)      { q.fail(uverbs.ErrMalformed) }
func (q *qp) Bind(driver.Bind, error)    { q.fail(uverbs.ErrMalformed) }
func (q *qp) Flush(uint32, uint8, uint8) { q.fail(uverbs.ErrMalformed) }

// UDAddr, RemoteSRQ and DCAddr are for types of QP that siw does not have.
func (q *qp) UDAddr(*driver.AH, uint32, uint32)         { q.fail(uverbs.ErrQPType) }
func (q *qp) RemoteSRQ(uint32)                          { q.fail(uverbs.ErrQPType) }
func (q *qp) DCAddr(*driver.AH, uint32, uint64, uint16) { q.fail(uverbs.ErrQPType) }

// Submit posts nothing if an operation was wrong. If the kernel refuses the
// doorbell, the requests are posted: see PostSend.
func (q *qp) Submit() error {
	q.finish()
	next, err := q.batch.next, q.batch.err
	if err == nil {
		err = q.submit(next)
	}
	q.Begin()
	runtime.KeepAlive(q)
	return err
}

func (q *qp) Abort() { q.Begin() }
