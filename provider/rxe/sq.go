package rxe

import (
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// A sendQueue is the send half of a QP.
type sendQueue struct {
	producer
	ops        *operations
	maxSGE     int
	maxInline  int
	maxMessage uint64
	bell       doorbell
	batch      batch
	bindOf     func(*uverbs.MWBind) (uverbs.ProviderBind, error)

	// Of a UD QP alone.
	pd  *uverbs.PD
	mtu func() uint64 // asks for maxMessage
}

func newSendQueue(r ring, c uverbs.QPCap, bell doorbell) sendQueue {
	room := r.size() - sendHeader
	return sendQueue{
		producer:   newProducer(r),
		ops:        &connected,
		maxSGE:     min(c.MaxSendSGE, room/sgeSize),
		maxInline:  min(c.MaxInline, room),
		maxMessage: uverbs.MaxMessage,
		bell:       bell,
	}
}

// sendDatagrams makes the queue that of a UD QP. mtu tells how long a message
// can be; it is asked when one is longer than what it said before.
func (q *sendQueue) sendDatagrams(pd *uverbs.PD, mtu func() uint64) {
	q.ops, q.pd, q.mtu, q.maxMessage = &datagrams, pd, mtu, 0
}

// tooLong answers for a message over maxMessage. The kernel would drop it and
// say that it was sent (IBA vol. 1, C10-93.1.1).
func (q *sendQueue) tooLong(total uint64) error {
	if q.mtu == nil || total > uverbs.MaxMessage {
		return uverbs.ErrRange
	}
	if q.maxMessage = q.mtu(); total > q.maxMessage {
		return uverbs.ErrTooLong
	}
	return nil
}

// address writes where a datagram goes.
func (q *sendQueue) address(w *sendWQE, ah *uverbs.AH, qpn, qkey uint32) error {
	av, err := uverbs.ProviderAVOf(ah, q.pd)
	if err != nil {
		return err
	}
	w.setAddress(uint32(av[0]), qpn, qkey)
	return nil
}

// encode writes wr to element i.
func (q *sendQueue) encode(i uint32, wr *uverbs.SendWR) error {
	has := q.ops.traits(wr.Opcode, wr.Flags)
	if has == 0 {
		return uverbs.ErrOpcode
	}
	if len(wr.Inline) > 0 {
		return q.encodeInline(i, has, wr)
	}
	if len(wr.SGL) > q.maxSGE {
		return uverbs.ErrTooManySGEs
	}
	if has&bare != 0 {
		return q.encodeBare(i, has, wr)
	}
	w := q.sendWQE(i)
	sgl := wr.SGL
	sges := w.sges(len(sgl))
	var total uint64
	for k := range sgl {
		sges[k] = sgl[k]
		total += uint64(sgl[k].Length)
	}
	if total > q.maxMessage {
		if err := q.tooLong(total); err != nil {
			return err
		}
	}
	w.start(has, wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, exOf(has, wr))
	w.setSGEs(len(sges), total)
	switch {
	case has&datagram != 0:
		return q.address(w, wr.AH, wr.QPN, wr.QKey)
	case has&operands != 0:
		if total != atomicSize {
			return uverbs.ErrAtomicSize
		}
		w.setOperands(wr.RKey, wr.CompareAdd, wr.Swap)
	}
	return nil
}

// atomicSize is what atomics work on. The kernel counts a packet for each MTU of
// what it is told, and waits for ever for the answers to more than one.
const atomicSize = 8

func (q *sendQueue) encodeInline(i uint32, has uint8, wr *uverbs.SendWR) error {
	if has&(scatter|bare) != 0 || len(wr.SGL) > 0 {
		return uverbs.ErrOpcode
	}
	if len(wr.Inline) > q.maxInline {
		return uverbs.ErrInlineTooLong
	}
	if n := uint64(len(wr.Inline)); n > q.maxMessage {
		if err := q.tooLong(n); err != nil {
			return err
		}
	}
	w := q.sendWQE(i)
	w.start(has, wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, exOf(has, wr))
	w.setInline(wr.Inline)
	if has&datagram != 0 {
		return q.address(w, wr.AH, wr.QPN, wr.QKey)
	}
	return nil
}

// exOf is what wr has for start beside its addresses.
func exOf(has uint8, wr *uverbs.SendWR) uint32 {
	if has&key != 0 {
		return wr.InvalidateRKey
	}
	return wr.Imm
}

// encodeBare writes a request that has no data of its own.
func (q *sendQueue) encodeBare(i uint32, has uint8, wr *uverbs.SendWR) error {
	if len(wr.SGL) > 0 {
		return uverbs.ErrOpcode
	}
	w := q.sendWQE(i)
	w.start(has, wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, exOf(has, wr))
	switch wr.Opcode {
	case uverbs.OpBindMW:
		b, err := q.bindOf(wr.Bind)
		if err != nil {
			return err
		}
		w.setBind(b)
	case uverbs.OpFlush:
		if wr.FlushLength > uverbs.MaxMessage {
			return uverbs.ErrRange
		}
		w.setFlush(wr.RKey, wr.FlushLength, wr.Placement, wr.Selectivity)
	case uverbs.OpAtomicWrite:
		w.setWord(wr.Swap)
	}
	return nil
}

// submit publishes the elements before i and rings the doorbell, if there are
// any.
func (q *sendQueue) submit(i uint32) error {
	if i == q.cur {
		return nil
	}
	q.publish(i)
	return q.bell.ring()
}

// PostSend implements uverbs.ProviderQP.
//
// When the kernel refuses the doorbell, the requests are on the ring already
// and stay there: the error is a *uverbs.Error, n counts them, and they go out
// with the next doorbell, are flushed when the QP goes to ERR, and are dropped
// when it goes to RESET.
func (q *qp) PostSend(wrs []uverbs.SendWR) (int, error) {
	s := &q.sq
	cur := s.cur
	for n := range wrs {
		err := uverbs.ErrQueueFull
		if !s.full(cur) {
			err = s.encode(cur, &wrs[n])
		}
		if err != nil {
			if ring := s.submit(cur); ring != nil {
				err = q.bellError(ring)
			}
			runtime.KeepAlive(q)
			return n, err
		}
		cur = s.next(cur)
	}
	if err := s.submit(cur); err != nil {
		return len(wrs), q.bellError(err)
	}
	runtime.KeepAlive(q)
	return len(wrs), nil
}
