package roce

// A Packet is one packet of the transport. The Opcode determines which of the
// extended headers are used; the others are zero.
type Packet struct {
	Route Route

	// The base transport header.
	Opcode    Opcode
	Solicited bool
	MigReq    bool // the sender's path is the migrated one
	FECN      bool
	BECN      bool
	AckReq    bool
	PKey      uint16
	DestQPN   uint32 // 24 bits
	PSN       uint32 // 24 bits

	XRCSRQ    uint32 // XRCETH: the shared receive queue, 24 bits
	DC        DCETH
	DETH      DETH
	RETH      RETH
	Atomic    AtomicETH
	AETH      AETH
	AtomicAck uint64 // AtomicAckETH: the old value
	Imm       uint32 // ImmDt
	InvRKey   uint32 // IETH

	// Payload is the payload without padding.
	Payload []byte
}

// DCETH is the extended header of all packets of dynamically connected transport. The number of a connection
// is larger than those of all earlier ones of the same initiator. A response has the connection's number and the
// target's.
type DCETH struct {
	Key        uint64 // of the target; 0 in a response
	Connection uint64
	SrcQPN     uint32 // 24 bits
	FirstPSN   uint32 // 24 bits: PSN of the connection's first packet
}

// DETH is the extended header of datagrams.
type DETH struct {
	QKey   uint32
	SrcQPN uint32 // 24 bits
}

// RETH is the extended header of the first packet of an RDMA request.
type RETH struct {
	VA     uint64
	RKey   uint32
	Length uint32
}

// AtomicETH is the extended header of an atomic request. The masks are for
// masked atomics only.
type AtomicETH struct {
	VA            uint64
	RKey          uint32
	Swap, Compare uint64 // fetch and add: Swap is the addend
	SwapMask      uint64 // masked fetch and add: the boundaries of the fields
	CompareMask   uint64
}

// AETH is the extended header of acknowledgments.
type AETH struct {
	Syndrome uint8
	MSN      uint32 // 24 bits
}

// Kinds of an AETH's syndrome: its upper three bits.
const (
	Ack    uint8 = 0x00 // lower five bits: credits, 31 for none
	RNRNak uint8 = 0x20 // lower five bits: the timer
	Nak    uint8 = 0x60 // lower five bits: the reason
)

// Syndromes of an AETH.
const (
	AckNoCredits      = Ack | 31
	NakSequence       = Nak // reason 0
	NakInvalidRequest = Nak | 1
	NakRemoteAccess   = Nak | 2
	NakRemoteOp       = Nak | 3
	NakInvalidRD      = Nak | 4
)

// Kind returns the upper three bits of the syndrome: Ack, RNRNak or Nak.
func (a AETH) Kind() uint8 { return a.Syndrome & 0xE0 }

// A Version is the encapsulation of a packet.
type Version uint8

const (
	InfiniBand Version = iota // by LID
	V1                        // RoCE version 1: Ethernet and a GRH
	V2                        // RoCE version 2: Ethernet, IP and UDP
)

// Route has the addresses of a packet. With V2, GIDs of the form ::ffff:a.b.c.d
// mean IPv4.
type Route struct {
	Version Version

	// InfiniBand.
	SLID, DLID uint16
	SL         uint8

	// The global route: on InfiniBand only if GRH is set, on Ethernet always.
	GRH          bool
	SGID, DGID   [16]byte
	FlowLabel    uint32 // 20 bits
	TrafficClass uint8
	HopLimit     uint8

	// Ethernet.
	SMAC, DMAC [6]byte
	Tagged     bool   // the frame has a VLAN tag
	VLAN       uint16 // the tag: priority in bits 13 to 15, identifier in bits 0 to 11

	// RoCE version 2.
	SourcePort uint16
}

// IPv4 reports whether the packet travels over IPv4.
func (r *Route) IPv4() bool {
	return r.Version == V2 && mapped(&r.SGID) && mapped(&r.DGID)
}

// mapped reports whether a GID is an IPv4 address.
func mapped(gid *[16]byte) bool {
	return [12]byte(gid[:12]) == [12]byte{10: 0xFF, 11: 0xFF}
}
