package uverbs

// A CQConfig describes a completion queue: ibv_create_cq(3).
type CQConfig struct {
	// Entries is how many completions the queue must hold. The device may
	// make it larger: see [CQ.Entries].
	Entries int
	// Channel carries the queue's events. Nil means a channel that all CQs of
	// the Context share.
	Channel *CompChannel
	// NoEvents makes a queue that can only be polled: Wait and Arm are refused.
	NoEvents bool
	// Vector is the completion vector, which decides on the interrupt's CPU:
	// 0 to Context.CompVectors - 1.
	Vector int
	// SingleGoroutine leaves out the lock. Polls, waits, Arm, Resize and Close
	// then belong to one goroutine at a time, and so do Close and moves to RESET
	// of the queue's QPs, which take their completions out of it.
	SingleGoroutine bool
	// PD may be a parent domain with a thread domain: the queue is a
	// SingleGoroutine one then.
	PD *PD
}

// A QPConfig describes a queue pair: ibv_create_qp(3).
type QPConfig struct {
	Type   QPType
	SendCQ *CQ
	RecvCQ *CQ // nil: SendCQ, or of an XRCSend QP none
	// SRQ is where the QP takes its receives from. MaxRecvWR and MaxRecvSGE
	// count for nothing then: the QP has no receive queue of its own.
	SRQ *SRQ

	MaxSendWR  int // 0: no send queue
	MaxRecvWR  int // 0: no receive queue
	MaxSendSGE int // 0: 1
	MaxRecvSGE int // 0: 1
	MaxInline  int // bytes

	// SignalAll makes every send request complete, as if it were Signaled.
	SignalAll bool
	// CreateFlags change what the QP does.
	CreateFlags QPCreateFlags
	// RSS makes a raw packet QP one that spreads packets over WQs. It has no
	// queues then, and no CQs.
	RSS *RSSConfig
	// SingleGoroutine leaves out the locks. Posting to each of the two queues
	// then belongs to one goroutine at a time, and Close to the owner of both.
	SingleGoroutine bool

	// GID is the local address that Endpoint and Connect use. Nil: the best
	// entry of the first active port, as SelectGID finds it.
	GID *GIDEntry
	// Access is what peers may do to this QP's memory, within what each MR
	// allows: RemoteRead, RemoteWrite, RemoteAtomic. Connect sets it.
	Access Access
	// QKey is what datagrams to a UD QP must carry. Ready sets it. With bit 31
	// set only a process with CAP_NET_RAW may.
	QKey uint32
}

// An SRQConfig describes a shared receive queue: ibv_create_srq(3).
type SRQConfig struct {
	MaxWR  int // receives that it holds
	MaxSGE int // of each; 0: 1
	// Limit raises [EventSRQLimitReached], once, when fewer receives than that
	// are left. 0: never. [SRQ.Modify] sets it again. mlx5 takes none here.
	Limit int
	// SingleGoroutine leaves out the lock. The queue then belongs to one
	// goroutine at a time.
	SingleGoroutine bool

	// XRCD makes it an XRC SRQ: it takes the messages that XRCRecv QPs of the
	// domain get for it, and their completions go to CQ, which must be set then.
	// Its memory is that of the PD, whichever QP a message comes by.
	XRCD *XRCD
	CQ   *CQ
}

// QPType is the transport service of a QP. The values are those of
// ibv_qp_type.
type QPType uint8

// The transport services.
const (
	RC QPType = 2 // reliable connection
	UC QPType = 3 // unreliable connection: no acknowledgement, no READ, no atomics
	UD QPType = 4 // unreliable datagram

	// The two ends of an extended reliable connection: see [XRCD].
	XRCSend QPType = 9  // initiator: sends, and names an SRQ of the peer each time
	XRCRecv QPType = 10 // target, made by XRCD.CreateQP
)

func (t QPType) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	case RawPacket:
		return "RawPacket"
	case XRCSend:
		return "XRCSend"
	case XRCRecv:
		return "XRCRecv"
	}
	return "QP type " + itoa(uint64(t))
}
