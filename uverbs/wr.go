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
	// QP and MR. A misaligned address is an error of the completion; rxe of Linux
	// 6.1 and 6.12 serves the peer's QP no more after that, RESET or not.
	OpCompareSwap Opcode = 5 // writes Swap where there was CompareAdd
	OpFetchAdd    Opcode = 6 // adds CompareAdd

	// OpLocalInv invalidates InvalidateRKey, the key of a type 2 window, on RC,
	// and on mlx5 on UC.
	// It waits for all requests before it.
	OpLocalInv Opcode = 7
	// OpBindMW binds a memory window as Bind says, on RC and UC.
	OpBindMW Opcode = 8
	// OpSendInv is a SEND, on RC, that invalidates InvalidateRKey, a key of the
	// peer's; the peer's completion tells it so.
	OpSendInv Opcode = 9

	// OpFlush, on RC, completes when earlier writes to FlushLength bytes at
	// RemoteAddr have come to where Placement says, and is not delayed by other
	// memory. The peer's QP and MR need FlushGlobal or FlushPersistent.
	OpFlush Opcode = 14
	// OpAtomicWrite, on RC, writes the 8 bytes of Swap to RemoteAddr, a multiple
	// of 8, all at once. The peer's QP and MR need RemoteWrite.
	OpAtomicWrite Opcode = 15
)

// A Placement says how far an [OpFlush] request brings data, as bits. The values
// are those of ibv_placement_type.
type Placement uint8

// The placement types of ibv_wr_flush(3).
const (
	PlacementGlobal     Placement = 1 << 0 // all of the peer's system sees it
	PlacementPersistent Placement = 1 << 1 // it outlives a loss of power
)

// A Selectivity says what an [OpFlush] request flushes. The values are those of
// ibv_selectivity_level.
type Selectivity uint8

// The selectivity levels of ibv_wr_flush(3).
const (
	SelectRange Selectivity = 0 // the bytes that it names
	SelectMR    Selectivity = 1 // all of the memory region: address and length do not count
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
	case OpLocalInv:
		return "LOCAL_INV"
	case OpBindMW:
		return "BIND_MW"
	case OpSendInv:
		return "SEND_INV"
	case OpFlush:
		return "FLUSH"
	case OpAtomicWrite:
		return "ATOMIC_WRITE"
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

	Placement   Placement   // FLUSH
	Selectivity Selectivity // FLUSH
	// InvalidateRKey is the key that a LOCAL_INV or a SEND_INV invalidates.
	InvalidateRKey uint32

	// SGL is the local memory: sent, or for a READ and the atomics written to.
	// It must be empty when Inline is not. That of a COMPARE_SWAP or FETCH_ADD
	// has 8 bytes; LOCAL_INV, BIND_MW, FLUSH and ATOMIC_WRITE have none.
	SGL []SGE
	// Inline is data that is copied into the queue by the post, so that it
	// needs no registration and may be reused at once. Its length is limited
	// by QPConfig.MaxInline. It is for SENDs and WRITEs.
	Inline []byte

	RemoteAddr uint64 // WRITE, READ, atomics, FLUSH
	RKey       uint32 // WRITE, READ, atomics, FLUSH
	Imm        uint32 // SEND_IMM, WRITE_IMM; host order, big-endian on the wire

	// AH, QPN and QKey address a message of a UD QP, which is a SEND or a
	// SEND_IMM of at most the port's active MTU. AH is one of the QP's PD. On
	// devices that follow the IBA there, a QKey with bit 31 set stands for the
	// QP's own; rxe sends it as it is.
	AH   *AH
	QPN  uint32
	QKey uint32

	CompareAdd uint64 // COMPARE_SWAP: what must be there; FETCH_ADD: what is added
	Swap       uint64 // COMPARE_SWAP: what is written then; ATOMIC_WRITE: what is written, in host order

	Bind        *MWBind // BIND_MW
	FlushLength uint32  // FLUSH, in bytes
	// RemoteSRQN is, on an XRCSend QP, the [SRQ.SRQN] of the XRC SRQ at the peer
	// that the request is for.
	RemoteSRQN uint32
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
