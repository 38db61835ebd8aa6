package rxe

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// sendWQE is the fixed part of struct rxe_send_wqe. A word contains two 4-byte
// fields of the C struct, the first one in the low half. Scatter/gather elements or
// inline data follow.
type sendWQE struct {
	wrID     uint64
	opcode   uint64     // reserved, opcode
	flags    uint64     // send_flags, ex
	raddr    uint64     // wr.rdma.remote_addr
	rkey     uint64     // wr.rdma.rkey, reserved
	operands [2]uint64  // of atomics: swap; rkey, because raddr and rkey above are the address and compare_add
	_        [11]uint64 // address vector of UD, for kernels that do not number AHs
	status   uint64     // status, state
	iova     uint64
	progress [3]uint64 // mask, first_psn; last_psn, ack_length; ssn, has_rd_atomic
	length   uint64    // dma.length, dma.resid
	sgeCount uint64    // dma.cur_sge, dma.num_sge
	offset   uint64    // dma.sge_offset, reserved
}

// The flags of ib_uverbs_send_wr that callers may set, and the one that is set
// here.
const (
	callerFlags = uverbs.Fence | uverbs.Signaled | uverbs.Solicited
	inlineFlag  = 1 << 3 // IB_SEND_INLINE
)

// The traits of an operation, besides those of package driver.
const (
	known    = driver.OpTraitsEnd << iota
	datagram // has a destination
)

// operations are the traits of each opcode on one type of QP.
type operations [driver.Opcodes]driver.OpTraits

// missing are the operations of ibv_post_send(3) that rxe does not have.
var missing = map[uverbs.QPType][]uverbs.Opcode{uverbs.UC: {uverbs.OpLocalInv}}

// operationsOf returns the operations of a type of QP, which all have the traits also.
func operationsOf(typ uverbs.QPType, also driver.OpTraits) (all operations) {
	for op := range uverbs.Opcode(driver.Opcodes) {
		o := driver.OperationOf(op)
		if o != nil && o.On(uint8(typ)) && !slices.Contains(missing[typ], op) {
			all[op] = known | also | o.Traits
		}
	}
	return all
}

var (
	connected      = operationsOf(uverbs.RC, 0)
	unacknowledged = operationsOf(uverbs.UC, 0)
	datagrams      = operationsOf(uverbs.UD, datagram)
)

// readless is for connections that allow no READs and atomics. The kernel would
// wait forever before it sent one.
var readless = func() operations {
	all := connected
	for op, has := range all {
		if has&driver.OpScatter != 0 {
			all[op] = 0
		}
	}
	return all
}()

// traits returns the traits of op, or 0 if the operation or a flag is not
// supported.
func (o *operations) traits(op uverbs.Opcode, f uverbs.SendFlags) driver.OpTraits {
	if op >= driver.Opcodes || f&^callerFlags != 0 {
		return 0
	}
	return o[op]
}

// start fills in the whole fixed part, for a message without data. ex is the
// immediate data or the key to invalidate.
//
// The kernel tests status and has_rd_atomic before it sets them, so the values of
// an earlier use of the element must be cleared.
func (w *sendWQE) start(
	has driver.OpTraits, op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, ex uint32,
) {
	if has&driver.OpRemote == 0 {
		raddr, rkey = 0, 0
	}
	switch {
	case has&driver.OpImm != 0:
		ex = bits.ReverseBytes32(ex)
	case has&driver.OpKey == 0:
		ex = 0
	}
	w.wrID = wrID
	w.opcode = uint64(op) << 32
	w.flags = uint64(f) | uint64(ex)<<32
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

// setSGEs sets the number of SGEs that follow and their total length in bytes.
func (w *sendWQE) setSGEs(n int, total uint64) {
	w.length = total | total<<32
	w.sgeCount = uint64(n) << 32
}

// setInline copies data after the fixed part and sets the length and the flag.
func (w *sendWQE) setInline(data []byte) {
	copy(w.inline(len(data)), data)
	n := uint64(len(data))
	w.length = n | n<<32
	w.flags |= inlineFlag
}

// setOperands fills in wr.atomic, in which the rkey is at another offset than in
// other operations.
func (w *sendWQE) setOperands(rkey uint32, compareAdd, swap uint64) {
	w.rkey = compareAdd
	w.operands = [2]uint64{swap, uint64(rkey)}
}

// setBind fills in wr.mw.
func (w *sendWQE) setBind(b driver.Bind) {
	w.raddr, w.rkey = b.Addr, b.Length
	w.operands = [2]uint64{uint64(b.LKey) | uint64(b.MWRKey)<<32, uint64(b.RKey) | uint64(b.Access)<<32}
}

// setFlush fills in wr.flush. The kernel reads the length from dma.length instead.
func (w *sendWQE) setFlush(rkey, n uint32, p uverbs.Placement, s uverbs.Selectivity) {
	w.rkey = uint64(rkey) << 32
	w.operands[0] = uint64(p) | uint64(s)<<8
	w.length = uint64(n) | uint64(n)<<32
}

// setWord sets the 8 bytes of an ATOMIC_WRITE. They are at the place of inline
// data, but the inline flag is not set.
func (w *sendWQE) setWord(v uint64) {
	binary.NativeEndian.PutUint64(w.inline(atomicSize), v)
	w.length = atomicSize | atomicSize<<32
}

// setAddress fills in the destination of a datagram: wr.ud.
func (w *sendWQE) setAddress(ahNum, qpn, qkey uint32) {
	w.raddr = uint64(qpn) | uint64(qkey)<<32
	w.rkey = uint64(ahNum) << 32 // pkey_index, reserved, ah_num
}
