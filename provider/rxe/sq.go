package rxe

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A sendQueue is the send half of a QP.
type sendQueue struct {
	producer
	typ        uverbs.QPType
	ops        *operations
	maxSGE     int
	maxInline  int
	maxMessage uint64
	bell       doorbell
	batch      batch
	owner      provider.QPOwner

	// For UD QPs only.
	pd  *driver.PD
	mtu func() uint64 // returns a new maxMessage
}

func newSendQueue(r ring, c uverbs.QPCap, bell doorbell) sendQueue {
	room := r.size() - sendHeader
	return sendQueue{
		producer:   newProducer(r),
		typ:        uverbs.RC,
		ops:        &connected,
		maxSGE:     min(c.MaxSendSGE, room/sgeSize),
		maxInline:  min(c.MaxInline, room),
		maxMessage: uverbs.MaxMessage,
		bell:       bell,
	}
}

// sendUnacknowledged makes q the queue of a UC QP.
func (q *sendQueue) sendUnacknowledged() { q.typ, q.ops = uverbs.UC, &unacknowledged }

// sendDatagrams makes q the queue of a UD QP. mtu returns the maximum length of
// a message. It is called for a message that is longer than its last result.
func (q *sendQueue) sendDatagrams(pd *driver.PD, mtu func() uint64) {
	q.typ, q.ops, q.pd, q.mtu, q.maxMessage = uverbs.UD, &datagrams, pd, mtu, 0
}

// setDepth sets how many READs and atomics the connection allows.
func (q *sendQueue) setDepth(n uint8) {
	switch {
	case n == 0 && q.ops == &connected:
		q.ops = &readless
	case n > 0 && q.ops == &readless:
		q.ops = &connected
	}
}

// refusal returns the error for an operation that the queue does not support.
func (q *sendQueue) refusal(op uverbs.Opcode, f uverbs.SendFlags) error {
	if q.ops == &readless && connected.traits(op, f) != 0 {
		return uverbs.ErrRdAtomic
	}
	return provider.Refusal(q.typ, op, f)
}

// tooLong returns the error for a message longer than maxMessage, or nil if the MTU
// has been raised. The kernel would drop the message and complete it with success
// (IBA vol. 1, C10-93.1.1).
func (q *sendQueue) tooLong(total uint64) error {
	if q.mtu == nil || total > uverbs.MaxMessage {
		return uverbs.ErrRange
	}
	if q.maxMessage = q.mtu(); total > q.maxMessage {
		return uverbs.ErrTooLong
	}
	return nil
}

// address writes the destination of a datagram.
func (q *sendQueue) address(w *sendWQE, ah *driver.AH, qpn, qkey uint32) error {
	av, err := ah.For(q.pd)
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
		return q.refusal(wr.Opcode, wr.Flags)
	}
	if len(wr.Inline) > 0 {
		return q.encodeInline(i, has, wr)
	}
	if len(wr.SGL) > q.maxSGE {
		return uverbs.ErrTooManySGEs
	}
	if has&driver.OpBare != 0 {
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
		return q.address(w, provider.AHOf(wr.AH), wr.QPN, wr.QKey)
	case has&driver.OpOperands != 0:
		if total != atomicSize {
			return uverbs.ErrAtomicSize
		}
		w.setOperands(wr.RKey, wr.CompareAdd, wr.Swap)
	}
	return nil
}

// atomicSize is the number of bytes that an atomic operates on. For a longer
// request, the kernel counts a packet for each MTU and waits forever for the
// responses to all but the first.
const atomicSize = 8

func (q *sendQueue) encodeInline(i uint32, has driver.OpTraits, wr *uverbs.SendWR) error {
	if has&(driver.OpScatter|driver.OpBare) != 0 || len(wr.SGL) > 0 {
		return uverbs.ErrMalformed
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
		return q.address(w, provider.AHOf(wr.AH), wr.QPN, wr.QKey)
	}
	return nil
}

// exOf returns the argument ex of start: the key to invalidate or the immediate
// data.
func exOf(has driver.OpTraits, wr *uverbs.SendWR) uint32 {
	if has&driver.OpKey != 0 {
		return wr.InvalidateRKey
	}
	return wr.Imm
}

// encodeBare writes a request without SGEs and inline data.
func (q *sendQueue) encodeBare(i uint32, has driver.OpTraits, wr *uverbs.SendWR) error {
	if len(wr.SGL) > 0 {
		return uverbs.ErrMalformed
	}
	w := q.sendWQE(i)
	w.start(has, wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, exOf(has, wr))
	switch wr.Opcode {
	case uverbs.OpBindMW:
		b, err := q.owner.Bind(wr)
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

// submit publishes the elements before i and rings the doorbell. It does nothing if
// there are none.
func (q *sendQueue) submit(i uint32) error {
	if i == q.cur {
		return nil
	}
	q.publish(i)
	return q.bell.ring()
}

// PostSend implements driver.QP.
//
// If the kernel refuses the doorbell, the requests are already on the ring and stay
// there. The error is a *uverbs.Error and n includes the requests. They are sent
// with the next doorbell, flushed when the QP moves to ERR, or dropped when it
// moves to RESET.
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
