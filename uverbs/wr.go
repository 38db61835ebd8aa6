package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// Opcode is the operation of a send work request. The values are those of
// ibv_wr_opcode (infiniband/verbs.h), which rxe uses on its rings too.
type Opcode uint8

// The operations of ibv_post_send(3).
const (
	OpWrite    Opcode = 0 // RDMA WRITE
	OpWriteImm Opcode = 1 // RDMA WRITE with immediate: consumes a receive at the peer
	OpSend     Opcode = 2
	OpSendImm  Opcode = 3
	OpRead     Opcode = 4 // RDMA READ, on RC; every local buffer needs LocalWrite

	// Atomics, on RC, operate on 8 bytes of the peer's memory, at an address that is
	// a multiple of 8. They store the previous value in the 8 bytes of their SGL, in
	// host order. They are atomic with respect to other atomics of the device.
	// QueryDevice reports whether they are also atomic with respect to the CPU. The
	// peer's QP and MR need RemoteAtomic. A misaligned address makes the request
	// complete with an error. In rxe of Linux 6.1 and 6.12, the peer's QP no longer
	// works after that, not even after RESET.
	OpCompareSwap Opcode = 5 // stores Swap if the value equals CompareAdd
	OpFetchAdd    Opcode = 6 // adds CompareAdd

	// OpLocalInv invalidates InvalidateRKey, the key of a type 2 window. It is for
	// RC, and on mlx5 also for UC. It waits for all earlier requests.
	OpLocalInv Opcode = 7
	// OpBindMW binds a memory window as described by Bind, on RC and UC.
	OpBindMW Opcode = 8
	// OpSendInv is a SEND, on RC, that invalidates InvalidateRKey, which is a key of
	// the peer. The peer's completion contains the key.
	OpSendInv Opcode = 9

	// OpTSO, on raw packet QPs, sends a part of a TCP stream as several frames. Inline has the
	// headers of one frame, from Ethernet to TCP, and SGL the data. The device sends MSS bytes of
	// data in each frame, the last one has the rest. It sets the lengths, the IPv4 identifications,
	// the sequence numbers and the flags, and with the flag ether.IPCsum the checksums.
	// QPConfig.MaxTSOHeader limits the headers, and TSO.MaxSize of ether.QueryDevice the data.
	OpTSO Opcode = 10

	// OpFlush, on RC, completes when earlier writes to FlushLength bytes at
	// RemoteAddr have reached the point that Placement specifies. Writes to other
	// memory do not delay it. The peer's QP and MR need FlushGlobal or
	// FlushPersistent.
	OpFlush Opcode = 14
	// OpAtomicWrite, on RC, atomically writes the 8 bytes of Swap to RemoteAddr,
	// which must be a multiple of 8. The peer's QP and MR need RemoteWrite.
	OpAtomicWrite Opcode = 15
)

// A Placement is a set of bits that say how far an [OpFlush] request must bring the
// data. The values are those of ibv_placement_type.
type Placement uint8

// The placement types of ibv_wr_flush(3).
const (
	PlacementGlobal     Placement = 1 << 0 // visible to the peer's whole system
	PlacementPersistent Placement = 1 << 1 // survives a power failure
)

// A Selectivity is the scope of an [OpFlush] request. The values are those of
// ibv_selectivity_level.
type Selectivity uint8

// The selectivity levels of ibv_wr_flush(3).
const (
	SelectRange Selectivity = 0 // the bytes at RemoteAddr
	SelectMR    Selectivity = 1 // the whole MR; address and length are ignored
)

func (o Opcode) String() string {
	if known := driver.OperationOf(o); known != nil {
		return known.Name
	}
	return "opcode " + itoa(uint64(o))
}

// SendFlags are the flags of a request in ibv_post_send(3). There is no flag for
// inline data: set SendWR.Inline or call SendBatch.Inline.
type SendFlags uint8

// The values are those of ibv_send_flags.
const (
	Fence     SendFlags = 1 << 0 // wait for earlier READs and atomics of this queue
	Signaled  SendFlags = 1 << 1 // create a completion even on success
	Solicited SendFlags = 1 << 2 // make the peer's completion a solicited event
)

// An SGE is a scatter/gather element: a range of registered memory. Create it with
// [MR.SGE], which checks the range. Fill in the fields directly only for memory
// that is not in this process's address space.
//
// Length is in bytes. Every post refuses a length above 2^31 with [ErrRange].
// [MR.SGE] returns such an SGE if the range is invalid.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// MaxMessage is the maximum length of a message, in bytes (IBA vol. 1, 9.7.5.1.4).
const MaxMessage = 1 << 31

// A SendWR is one send work request: struct ibv_send_wr without its link.
// [QP.PostSend] keeps no reference to it.
type SendWR struct {
	WRID   uint64 // copied to WC.WRID
	Opcode Opcode
	Flags  SendFlags

	Placement   Placement   // FLUSH
	Selectivity Selectivity // FLUSH
	// InvalidateRKey is the key that LOCAL_INV or SEND_INV invalidates.
	InvalidateRKey uint32

	// SGL is the local memory. READ and the atomics write to it, other requests send
	// it. It must be empty if Inline is not, except on raw packet QPs. For COMPARE_SWAP and FETCH_ADD it has 8
	// bytes. For LOCAL_INV, BIND_MW, FLUSH and ATOMIC_WRITE it is empty.
	SGL []SGE
	// Inline is data of a SEND or WRITE that the post copies into the queue. It needs
	// no registration and may be reused at once. QPConfig.MaxInline limits its
	// length. For a TSO, it has the headers.
	Inline []byte

	RemoteAddr uint64 // WRITE, READ, atomics, FLUSH
	RKey       uint32 // WRITE, READ, atomics, FLUSH
	Imm        uint32 // SEND_IMM, WRITE_IMM; in host order, big-endian on the wire

	// AH, QPN and QKey are the destination of a message of a UD QP. The message is a
	// SEND or SEND_IMM and not longer than the port's active MTU. AH must belong to
	// the QP's PD. According to the IBA, a QKey with bit 31 set stands for the QP's
	// own Q_Key. rxe does not follow this and sends it as it is.
	//
	// On an SRD QP they are the destination of every request, and a message may have up to
	// PortAttr.MaxMsgSize bytes.
	//
	// On a DCI they are the destination of every request except LOCAL_INV and BIND_MW: QPN is
	// the number of the DCT, and DCKey replaces QKey.
	AH   *AH
	QPN  uint32
	QKey uint32
	// DCKey is the access key of the DCT, on DCIs: QPConfig.DCKey of the peer. With another
	// key, the request completes with an error.
	DCKey uint64
	// DCStream is the stream of the request, on DCIs that have streams: see [DCIStreams]. It may
	// be any number.
	DCStream uint16
	MSS      uint16 // TSO: bytes of data in each frame

	CompareAdd uint64 // COMPARE_SWAP: the expected value; FETCH_ADD: the value to add
	Swap       uint64 // COMPARE_SWAP: the new value; ATOMIC_WRITE: the value to write; in host order

	Bind        *MWBind // BIND_MW
	FlushLength uint32  // FLUSH, in bytes
	// RemoteSRQN is used on XRCSend QPs. It is the [SRQ.SRQN] of the XRC SRQ at the
	// peer.
	RemoteSRQN uint32
}

// GRHLen is the number of bytes before the datagram in a receive of a UD QP. They
// contain the GRH or the IP header, for [Context.AHAttrFromWC], and are included in
// WC.ByteLen.
//
// A receive of a UD QP needs room for GRHLen and the port's active MTU. What
// happens to a longer datagram depends on the device: it is dropped, or it makes
// the receive complete with an error, and in rxe of Linux 6.1 it also moves the QP
// to ERR.
const GRHLen = 40

// A RecvWR is one receive work request: struct ibv_recv_wr without its link.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}
