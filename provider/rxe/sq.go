package rxe

import (
	"math/bits"
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// sendWQE is the fixed part of struct rxe_send_wqe, with two 4-byte fields of
// the C struct in a word, the first in the low half. Scatter/gather elements
// or inline data follow.
type sendWQE struct {
	wrID     uint64
	opcode   uint64     // reserved, opcode
	flags    uint64     // send_flags, ex
	raddr    uint64     // wr.rdma.remote_addr
	rkey     uint64     // wr.rdma.rkey, reserved
	operands [2]uint64  // of atomics: swap; rkey, for raddr and rkey above are the address and compare_add
	_        [11]uint64 // address vector of UD, for kernels that do not number AHs
	status   uint64     // status, state
	iova     uint64
	progress [3]uint64 // mask, first_psn; last_psn, ack_length; ssn, has_rd_atomic
	length   uint64    // dma.length, dma.resid
	sgeCount uint64    // dma.cur_sge, dma.num_sge
	offset   uint64    // dma.sge_offset, reserved
}

// The flags of ib_uverbs_send_wr that callers may give, and the one that is
// made here.
const (
	callerFlags = uverbs.Fence | uverbs.Signaled | uverbs.Solicited
	inlineFlag  = 1 << 3 // IB_SEND_INLINE
)

// What an operation has beside its data.
const (
	known    = 1 << iota
	remote   // an address and a key at the peer
	imm      // immediate data
	scatter  // writes to its SGEs, so there is no inline form
	datagram // names its receiver
	operands // of an atomic, and 8 bytes to write to
)

// operations are those of one type of QP.
type operations [16]uint8

var connected = operations{
	uverbs.OpWrite:    known | remote,
	uverbs.OpWriteImm: known | remote | imm,
	uverbs.OpSend:     known,
	uverbs.OpSendImm:  known | imm,
	uverbs.OpRead:     known | remote | scatter,

	uverbs.OpCompareSwap: known | remote | scatter | operands,
	uverbs.OpFetchAdd:    known | remote | scatter | operands,
}

// unacknowledged are those of UC.
var unacknowledged = operations{
	uverbs.OpWrite:    known | remote,
	uverbs.OpWriteImm: known | remote | imm,
	uverbs.OpSend:     known,
	uverbs.OpSendImm:  known | imm,
}

var datagrams = operations{
	uverbs.OpSend:    known | datagram,
	uverbs.OpSendImm: known | datagram | imm,
}

// traits returns what op has, and 0 for an operation or a flag that is unknown.
func (o *operations) traits(op uverbs.Opcode, f uverbs.SendFlags) uint8 {
	if op > 15 || f&^callerFlags != 0 {
		return 0
	}
	return o[op&15]
}

// start fills in all of the fixed part, for a message of no data.
//
// The kernel tests status and has_rd_atomic before it ever sets them, so what
// an earlier lap of the ring left there must go.
func (w *sendWQE) start(has uint8, op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, immData uint32) {
	if has&remote == 0 {
		raddr, rkey = 0, 0
	}
	if has&imm == 0 {
		immData = 0
	}
	w.wrID = wrID
	w.opcode = uint64(op) << 32
	w.flags = uint64(f) | uint64(bits.ReverseBytes32(immData))<<32
	w.raddr = raddr
	w.rkey = uint64(rkey)
	w.operands = [2]uint64{}
	w.status = 0
	w.iova = raddr
	w.progress = [3]uint64{}
	w.length = 0
	w.sgeCount = 0
	w.offset = 0
}

// setSGEs says that n elements with total bytes follow.
func (w *sendWQE) setSGEs(n int, total uint64) {
	w.length = total | total<<32
	w.sgeCount = uint64(n) << 32
}

// setInline copies data behind the fixed part and says so.
func (w *sendWQE) setInline(data []byte) {
	copy(w.inline(len(data)), data)
	n := uint64(len(data))
	w.length = n | n<<32
	w.flags |= inlineFlag
}

// setOperands fills in wr.atomic, which has the rkey at another place than the
// other operations.
func (w *sendWQE) setOperands(rkey uint32, compareAdd, swap uint64) {
	w.rkey = compareAdd
	w.operands = [2]uint64{swap, uint64(rkey)}
}

// setAddress fills in where a datagram goes: wr.ud.
func (w *sendWQE) setAddress(ahNum, qpn, qkey uint32) {
	w.raddr = uint64(qpn) | uint64(qkey)<<32
	w.rkey = uint64(ahNum) << 32 // pkey_index, reserved, ah_num
}

// A sendQueue is the send half of a QP.
type sendQueue struct {
	producer
	ops        *operations
	maxSGE     int
	maxInline  int
	maxMessage uint64
	bell       doorbell
	batch      batch

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
	w.start(has, wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.Imm)
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
	if has&scatter != 0 || len(wr.SGL) > 0 {
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
	w.start(has, wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.Imm)
	w.setInline(wr.Inline)
	if has&datagram != 0 {
		return q.address(w, wr.AH, wr.QPN, wr.QKey)
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
