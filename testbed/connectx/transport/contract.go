package transport

import "github.com/goverbs/goverbs/testbed/connectx/roce"

// An Op is the operation of a request or of a message that arrived.
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
	Local // nothing goes over the wire: NOP, UMR, bind, local invalidate
)

// A Request is a send request, decoded and checked by its owner.
type Request struct {
	Op        Op
	Length    uint32 // of the payload; 8 for atomics
	Imm       uint32 // the immediate, or the key that SendInval invalidates
	Solicited bool
	Fence     bool // waits until READs and atomics before it are done

	RemoteAddr uint64
	RKey       uint32
	// Operand: compare and swap: {swap, compare}; fetch and add: {add}; masked
	// compare and swap: {swap, compare, swap mask, compare mask}; masked fetch and
	// add: {add, 0, field boundaries}.
	Operand [4]uint64

	XRCSRQ uint32 // the peer's shared receive queue: XRC
	Dest   *Dest  // UD

	WQE any // the owner's

	way way // the endpoint's
}

// A Dest is where a datagram goes.
type Dest struct {
	Path Path
	QPN  uint32
	QKey uint32
}

// A Path is the address vector of a queue pair or of a datagram.
type Path struct {
	DLID         uint16
	PathBits     uint8 // of the sender's LID, if the port has several
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

// A Port sends packets. It fills in the packet's Route from the path.
// The packet and its payload are the port's from then on.
type Port interface {
	Send(path *Path, p *roce.Packet)
}

// A Syndrome is how a request or a message ended: zero if well, else the value of
// an error completion.
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

// These are no ends of a request or message, but reasons to try again. Gather,
// Scatter, Deliver and the methods of a Region may return them.
const (
	// PageFault means that the host's memory is not there yet, and that the owner
	// has asked for it. The endpoint stops that half of its work until the owner
	// calls Resume, and then calls the method again.
	PageFault Syndrome = 0xff
	// PageFaultLost means the same of Deliver, and that the owner has completed the
	// receive request: the message takes another one.
	PageFaultLost Syndrome = 0xfe
)

// An Access is what a peer wants of memory.
type Access uint8

const (
	RemoteWrite Access = iota + 1
	RemoteRead
	RemoteAtomic
)

// An Event is why a responder cannot go on.
type Event uint8

const (
	NoEvent      Event = iota // the receive request's completion says it all
	RequestError              // the peer's request was invalid
	AccessError               // the peer's request violated access rights
	Catastrophic              // an error that no completion could tell
)

// A Receive is a receive request that a message has taken.
type Receive struct {
	WQE any // the owner's
}

// A Message is what has arrived for a receive request.
type Message struct {
	Op        Op // Send, SendImm, SendInval or WriteImm
	Length    uint32
	Imm       uint32 // the immediate, or the key that was invalidated
	Solicited bool
	Syndrome  Syndrome
	// Packet is the message's last: it has the source's addresses, and with UD
	// the source's queue pair. Nil if an error ended the message without one.
	Packet *roce.Packet
}

// Queues is the queue pair behind an endpoint. The endpoint calls it inside the
// loop. Methods may call the endpoint back (SetState, TakeBack).
type Queues interface {
	// Next is the next request that was posted, each once; nil if there is none.
	Next() *Request
	// Gather fills p with the request's payload from off on.
	Gather(r *Request, off uint32, p []byte) Syndrome
	// Scatter stores what a READ got at off, or an atomic's old value: eight
	// bytes, big-endian.
	Scatter(r *Request, off uint32, p []byte) Syndrome
	// Execute does a Local request: everything before it has been started, and
	// with a fence, all READs and atomics before it are done. A request that
	// is to fail in its turn can be a Local one as well.
	Execute(r *Request) Syndrome
	// Done says that a request has ended; requests end in order. If s is not OK,
	// the endpoint has stopped sending, and it is the owner who moves the
	// queue pair to its error state (SetState), takes back what was
	// outstanding (TakeBack) and flushes.
	Done(r *Request, s Syndrome)

	// Receive takes the next receive request, with XRC of the given shared
	// receive queue. Nil and OK: there is none. An error ends the connection.
	Receive(srq uint32) (*Receive, Syndrome)
	// Deliver stores p at off of a receive request's buffers. LocalLength: they
	// are too short.
	Deliver(rc *Receive, off uint32, p []byte) Syndrome
	// Arrived completes a receive request. With UD, the message's length has the
	// 40 bytes of the network header, which Deliver has got at 0 if there is one.
	Arrived(rc *Receive, m Message)
	// Invalidate is the responder's part of SendInval, before Arrived. OK or RemoteAccess.
	Invalidate(srq, rkey uint32) Syndrome
	// Remote is memory as a peer may use it, n bytes from va on, n > 0: key, rights
	// of key and queue pair, bounds and protection domain are right. With XRC
	// srq is the shared receive queue, else 0. OK, RemoteAccess or RemoteInvalidRequest.
	Remote(srq, rkey uint32, va uint64, n uint32, a Access) (Region, Syndrome)

	// Broken says that the responder cannot go on: the owner moves the queue
	// pair to its error state.
	Broken(e Event)
	// Established says that the first packet came while the state was RTR.
	Established()
	// SQDrained says that in state SQD all requests that had begun are done.
	SQDrained()
	// Migrated says that the path has become the alternate one, or, with ok
	// false, that the peer asks for it from somewhere else.
	Migrated(ok bool)
}

// A Region is a piece of memory that a peer may use. Offsets are from the address
// that Remote was given. A region may have been invalidated meanwhile: RemoteAccess.
type Region interface {
	Write(off uint32, p []byte) Syndrome
	Read(off uint32, p []byte) Syndrome
	// Atomic does one of the four atomics on the eight bytes at offset 0.
	// RemoteInvalidRequest: the address is not aligned.
	Atomic(op Op, operand [4]uint64) (old uint64, s Syndrome)
}
