package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A batch is the queue's state at the beginning of the batch. To abort the batch, the queue
// returns to it. The device does not see the blocks after cur.
type batch struct {
	cur, head, last uint32
	fence           uint8
}

// begin begins a batch and clears the error.
func (s *sendQueue) begin() {
	s.batch = batch{s.cur, s.head, s.last, s.fence}
	s.request.state, s.request.err = requestClosed, nil
	s.setLimit()
}

// abort drops the batch.
func (s *sendQueue) abort() {
	b := &s.batch
	s.cur, s.head, s.last, s.fence = b.cur, b.head, b.last, b.fence
	s.begin()
}

// Begin implements driver.QP, as the methods below do.
func (q *qp) Begin() { q.sq.begin() }

// The functions named Rest handle the requests that the fast path does not: see
// send_fast_unsafe.go.

//go:noinline
func (q *qp) opRest(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	if q.sq.close() {
		q.sq.start(op, f, wrID, raddr, rkey, imm)
	}
	runtime.KeepAlive(q)
}

//go:noinline
func (q *qp) sgeRest(sge uverbs.SGE) {
	q.sq.sge(sge)
	runtime.KeepAlive(q)
}

//go:noinline
func (q *qp) inlineRest(data []byte) {
	q.sq.inline(data)
	runtime.KeepAlive(q)
}

//go:noinline
func (q *qp) opSGERest(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	q.opRest(op, f, wrID, raddr, rkey, 0)
	q.sgeRest(sge)
}

//go:noinline
func (q *qp) opInlineRest(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	q.opRest(op, f, wrID, raddr, rkey, 0)
	q.inlineRest(data)
}

func (q *qp) Atomic(compareAdd, swap uint64) {
	q.sq.atomic(compareAdd, swap)
	runtime.KeepAlive(q)
}

func (q *qp) Bind(b driver.Bind, err error) {
	q.sq.bind(b, err)
	runtime.KeepAlive(q)
}

// Flush fails: the device has no FLUSH, so there is no operation that it belongs to.
func (q *qp) Flush(uint32, uint8, uint8) { q.sq.fail(uverbs.ErrMalformed) }

//go:noinline
func (q *qp) UDAddr(ah *driver.AH, qpn, qkey uint32) {
	q.sq.udAddr(ah, qpn, qkey)
	runtime.KeepAlive(q)
}

//go:noinline
func (q *qp) RemoteSRQ(srqn uint32) {
	q.sq.remoteSRQ(srqn)
	runtime.KeepAlive(q)
}

//go:noinline
func (q *qp) DCAddr(ah *driver.AH, dctn uint32, key uint64, stream uint16) {
	q.sq.dcAddr(ah, dctn, key, stream)
	runtime.KeepAlive(q)
}

func (q *qp) Submit() error {
	s := &q.sq
	if !s.close() {
		err := s.request.err
		s.abort()
		return err
	}
	if s.cur != s.batch.cur {
		burst := uint64(0)
		if s.head == s.batch.head+1 {
			r := &s.request
			inlined := r.state == requestInlined || r.state == requestAddressed && r.inlined
			burst = s.burstOf(s.cur-s.batch.cur, inlined)
		}
		s.postSendDB(burst)
	}
	s.begin()
	runtime.KeepAlive(q)
	return nil
}

func (q *qp) Abort() { q.sq.abort() }
