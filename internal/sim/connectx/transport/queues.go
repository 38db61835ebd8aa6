package transport

import "github.com/goverbs/goverbs/internal/sim/connectx/roce"

// An Op is the operation of a send request or of a received message.
type Op uint8

const (
	Send Op = iota
	SendImm
	SendInval
	Write
	WriteImm
	Read
	CompareSwap
	FetchAdd
	MaskedCompareSwap
	MaskedFetchAdd
	Local // sends no packet: NOP, UMR, bind, local invalidate
)

// Reads reports whether the operation has a response with data: a READ or an atomic.
func (op Op) Reads() bool { return op >= Read && op <= MaskedFetchAdd }

// A Request is a send request, decoded and checked by its owner.
type Request struct {
	Op        Op
	Length    uint32 // of the payload, in bytes; 8 for atomics
	Imm       uint32 // the immediate, or the key that SendInval invalidates
	Solicited bool
	Fence     bool // wait for preceding READs and atomics

	RemoteAddr uint64
	RKey       uint32
	// Operand has the operands of an atomic. Compare and swap: {swap, compare};
	// fetch and add: {add}; masked compare and swap: {swap, compare, swap mask,
	// compare mask}; masked fetch and add: {add, 0, field boundaries}.
	Operand [4]uint64

	XRCSRQ uint32 // the peer's shared receive queue: XRC
	Dest   *Dest  // UD and DC
	Stream uint16 // DC: requests of different streams do not fail together, see Skip

	WQE any // for the owner

	way way // for the endpoint
}

// A Dest is the destination of a datagram or of a dynamic connection.
type Dest struct {
	Path  Path
	QPN   uint32
	QKey  uint32 // UD
	DCKey uint64 // DC
}

// A Path is the address vector of a queue pair or of a datagram.
type Path struct {
	DLID         uint16
	PathBits     uint8 // path bits of the sender's LID, if the port has several LIDs
	GRH          bool
	SGIDIndex    uint8
	DGID         [16]byte
	FlowLabel    uint32
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	DMAC         [6]byte
	UDPSport     uint16
	PKeyIndex    uint16
}

// A Port sends packets. It fills in the packet's Route from the path. Send
// transfers the ownership of the packet and its payload to the port.
type Port interface {
	Send(path *Path, p *roce.Packet)
}

// A Syndrome is the result of a request or a message: zero on success, else the
// syndrome of an error completion.
type Syndrome uint8

const (
	OK                   Syndrome = 0x00
	LocalLength          Syndrome = 0x01
	LocalQPOp            Syndrome = 0x02
	LocalProtection      Syndrome = 0x04
	Flushed              Syndrome = 0x05
	BindError            Syndrome = 0x06
	BadResponse          Syndrome = 0x10
	LocalAccess          Syndrome = 0x11
	RemoteInvalidRequest Syndrome = 0x12
	RemoteAccess         Syndrome = 0x13
	RemoteOp             Syndrome = 0x14
	TransportRetry       Syndrome = 0x15
	RNRRetry             Syndrome = 0x16
	RemoteAborted        Syndrome = 0x22
)

// The following are not final results. Gather, Scatter, Deliver and the methods
// of a Region return them if the endpoint must try again.
const (
	// PageFault means that the host's memory is not present and that the owner
	// has requested it. The endpoint stops the affected half (requester or
	// responder) until the owner calls Resume, and then calls the method again.
	PageFault Syndrome = 0xff
	// PageFaultLost is returned by Deliver only: as PageFault, but the owner
	// has completed the receive request, and the message needs another one.
	PageFaultLost Syndrome = 0xfe
)

// An Access is the kind of access of a peer to memory.
type Access uint8

const (
	RemoteWrite Access = iota + 1
	RemoteRead
	RemoteReadAgain // a READ that the peer has requested before
	RemoteAtomic
)

// An Event is the reason why a responder cannot continue.
type Event uint8

const (
	NoEvent      Event = iota // the error is reported by the receive request's completion
	RequestError              // the peer's request was invalid
	AccessError               // the peer's request violated access rights
	Catastrophic              // an error that no completion reports
)

// A Receive is a receive request in use by a message.
type Receive struct {
	WQE any // for the owner
}

// A Message describes the message that a receive request received.
type Message struct {
	Op        Op // Send, SendImm, SendInval or WriteImm
	Length    uint32
	Imm       uint32 // the immediate, or the key that was invalidated
	Solicited bool
	Syndrome  Syndrome
	// Packet is the last packet of the message, with the addresses of the
	// source and, for UD, its QP number. It is nil if an error ended the
	// message without a packet.
	Packet *roce.Packet
}

// Queues is the queue pair behind an endpoint. The endpoint calls its methods
// inside the loop. Methods may call the endpoint (SetState, TakeBack).
type Queues interface {
	// Next returns the next posted request, each one once, or nil.
	Next() *Request
	// Gather fills p with the request's payload from offset off.
	Gather(r *Request, off uint32, p []byte) Syndrome
	// Scatter stores the data of a READ at offset off, or the old value of an
	// atomic (eight bytes, big-endian).
	Scatter(r *Request, off uint32, p []byte) Syndrome
	// Execute carries out a Local request. Everything before it has been
	// started and, with a fence, all READs and atomics before it have
	// completed. The owner may also use a Local request for one that must fail
	// in order.
	Execute(r *Request) Syndrome
	// Done reports that a request has ended. Requests end in order. If s is not
	// OK, the endpoint has stopped sending; the owner moves the queue pair to
	// its error state (SetState), takes back the outstanding requests
	// (TakeBack) and flushes them.
	Done(r *Request, s Syndrome)

	// Receive removes the next receive request, for XRC from the given shared
	// receive queue. It returns nil and OK if there is no request. An error
	// ends the connection.
	Receive(srq uint32) (*Receive, Syndrome)
	// Posted returns the number of receive requests that Receive could remove.
	Posted(srq uint32) int
	// Deliver stores p at offset off of a receive request's buffers. It returns
	// LocalLength if they are too short.
	Deliver(rc *Receive, off uint32, p []byte) Syndrome
	// Arrived completes a receive request. For UD, the message's length
	// includes the 40 bytes of the network header, which were passed to Deliver
	// at offset 0 if the packet has one.
	Arrived(rc *Receive, m Message)
	// Invalidate invalidates the rkey of a SendInval, before Arrived. It
	// returns OK or RemoteAccess.
	Invalidate(srq, rkey uint32) Syndrome
	// Remote returns the n > 0 bytes of memory at va for an access by the peer.
	// It checks the key, the access rights of key and queue pair, the bounds
	// and the protection domain. srq is the shared receive queue for XRC, else
	// 0. It returns OK, RemoteAccess or RemoteInvalidRequest.
	Remote(srq, rkey uint32, va uint64, n uint32, a Access) (Region, Syndrome)

	// Broken reports that the responder cannot continue. The owner moves the
	// queue pair to its error state.
	Broken(e Event)
	// Established reports that the first packet arrived in state RTR.
	Established()
	// SQDrained reports, in state SQD, that all requests that had begun have
	// completed.
	SQDrained()
	// Migrated reports that the alternate path is in use or, if ok is false,
	// that the peer requested the migration from a different path.
	Migrated(ok bool)
}

// A Region is memory that a peer may access. Offsets are relative to the
// address passed to Remote. If the region was invalidated meanwhile, methods
// return RemoteAccess.
type Region interface {
	Write(off uint32, p []byte) Syndrome
	Read(off uint32, p []byte) Syndrome
	// Atomic carries out one of the four atomics on the eight bytes at offset
	// 0. It returns RemoteInvalidRequest if the address is not aligned.
	Atomic(op Op, operand [4]uint64) (old uint64, s Syndrome)
}
