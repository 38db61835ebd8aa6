package uverbs

// Opcode names the operation of a send work request. The values are those of
// ibv_wr_opcode (infiniband/verbs.h), which rxe puts on its rings as they are.
type Opcode uint8

// The operations of ibv_post_send(3).
const (
	OpWrite    Opcode = 0 // RDMA WRITE
	OpWriteImm Opcode = 1 // RDMA WRITE with immediate: consumes a receive at the peer
	OpSend     Opcode = 2
	OpSendImm  Opcode = 3
	OpRead     Opcode = 4 // RDMA READ, on RC: needs LocalWrite on every local buffer

	// The atomics, on RC, work on 8 bytes at the peer, at a multiple of 8, and
	// write what was there before to the 8 bytes of their SGL, in host order.
	// A device does them one at a time against each other; QueryDevice tells
	// whether against the CPU too. Both ends need RemoteAtomic in the peer's
	// QP and MR.
	OpCompareSwap Opcode = 5 // writes Swap where there was CompareAdd
	OpFetchAdd    Opcode = 6 // adds CompareAdd
)

func (o Opcode) String() string {
	switch o {
	case OpWrite:
		return "WRITE"
	case OpWriteImm:
		return "WRITE_IMM"
	case OpSend:
		return "SEND"
	case OpSendImm:
		return "SEND_IMM"
	case OpRead:
		return "READ"
	case OpCompareSwap:
		return "COMPARE_SWAP"
	case OpFetchAdd:
		return "FETCH_ADD"
	}
	return "opcode " + itoa(uint64(o))
}

// SendFlags are the per-request flags of ibv_post_send(3). Inline data is not
// a flag here: set SendWR.Inline, or call SendBatch.Inline.
type SendFlags uint8

// The values are those of ibv_send_flags.
const (
	Fence     SendFlags = 1 << 0 // wait for earlier READs and atomics of this queue
	Signaled  SendFlags = 1 << 1 // make a completion when done
	Solicited SendFlags = 1 << 2 // let the peer's completion be a solicited event
)

// An SGE names a range of registered memory: a scatter/gather element. Make
// one with [MR.SGE], which checks the range; the raw form is there for memory
// whose address this process does not own.
//
// Length is in bytes. A length over 2^31 is refused by every post with
// [ErrRange]: [MR.SGE] answers such a one when its range is bad.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// MaxMessage is the longest message that a work request can move, in bytes
// (IBA vol. 1, 9.7.5.1.4).
const MaxMessage = 1 << 31

// A SendWR is one send work request: struct ibv_send_wr without its link.
// [QP.PostSend] keeps no part of it after it returns.
type SendWR struct {
	WRID   uint64 // comes back as WC.WRID
	Opcode Opcode
	Flags  SendFlags

	// SGL is the local memory: sent, or for a READ and the atomics written to.
	// It must be empty when Inline is not. That of an atomic has 8 bytes.
	SGL []SGE
	// Inline is data that is copied into the queue by the post, so that it
	// needs no registration and may be reused at once. Its length is limited
	// by QPConfig.MaxInline. Not for READ and the atomics.
	Inline []byte

	RemoteAddr uint64 // WRITE, READ, atomics
	RKey       uint32 // WRITE, READ, atomics
	Imm        uint32 // SEND_IMM, WRITE_IMM; host order, big-endian on the wire

	// AH, QPN and QKey address a message of a UD QP, which is a SEND or a
	// SEND_IMM of at most the port's active MTU. AH is one of the QP's PD. On
	// devices that follow the IBA there, a QKey with bit 31 set stands for the
	// QP's own; rxe sends it as it is.
	AH   *AH
	QPN  uint32
	QKey uint32

	CompareAdd uint64 // COMPARE_SWAP: what must be there; FETCH_ADD: what is added
	Swap       uint64 // COMPARE_SWAP: what is written then
}

// GRHLen is how many bytes of a receive's buffers come before the datagram on
// a UD QP: the GRH, or the IP header, for [Context.AHAttrFromWC]. They count
// in WC.ByteLen.
//
// Give each receive of a UD QP room for GRHLen and the port's active MTU. What
// a longer datagram does differs: it is dropped, or it fails the receive, and
// in rxe of Linux 6.1 the QP with it.
const GRHLen = 40

// A RecvWR is one receive work request: struct ibv_recv_wr without its link.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}
