package rxe

import (
	"runtime"
	"slices"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// lastOf returns the WQE of the last operation if it is one of ops. Otherwise it
// returns nil and the batch has an error.
func (s *sendQueue) lastOf(ops ...uverbs.Opcode) *sendWQE {
	b := &s.batch
	switch {
	case b.err != nil:
		return nil
	case b.traits == 0 || !slices.Contains(ops, b.op):
		b.err = uverbs.ErrMalformed
		return nil
	}
	return s.sendWQE(b.last)
}

func (q *qp) Atomic(compareAdd, swap uint64) {
	s := &q.sq
	w := s.lastOf(uverbs.OpCompareSwap, uverbs.OpFetchAdd, uverbs.OpAtomicWrite)
	switch {
	case w == nil:
		return
	case s.batch.op == uverbs.OpAtomicWrite:
		w.setWord(swap)
	default:
		w.setOperands(s.batch.rkey, compareAdd, swap)
	}
	runtime.KeepAlive(q)
}

func (q *qp) Bind(b driver.Bind, err error) {
	s := &q.sq
	switch w := s.lastOf(uverbs.OpBindMW); {
	case w == nil:
		return
	case err != nil:
		s.batch.err = err
		return
	default:
		w.setBind(b)
		s.batch.incomplete = nil
	}
	runtime.KeepAlive(q)
}

func (q *qp) Flush(n uint32, placement, selectivity uint8) {
	s := &q.sq
	w := s.lastOf(uverbs.OpFlush)
	switch {
	case w == nil:
		return
	case n > uverbs.MaxMessage:
		s.batch.err = uverbs.ErrRange
		return
	}
	w.setFlush(s.batch.rkey, n, uverbs.Placement(placement), uverbs.Selectivity(selectivity))
	runtime.KeepAlive(q)
}
