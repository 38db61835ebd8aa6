package uverbs

// A CQConfig describes a completion queue: ibv_create_cq(3).
type CQConfig struct {
	// Entries is how many completions the queue must hold. The device may make it larger: see
	// [CQ.Entries].
	//
	// A full queue loses completions and reports [ErrCQOverrun]. The queue is large enough if
	// it has an entry for each request that may complete before it is polled. If every send is
	// signaled, that is the sum over the QPs of MaxSendWR and of MaxRecvWR, or of the MaxWR of
	// their SRQs. CreateQP does not check this, since a program may leave sends unsignaled or
	// post fewer requests than the queues hold.
	Entries int
	// Channel carries the queue's events. Nil means a channel that all CQs of the Context
	// share.
	Channel *CompChannel
	// NoEvents creates a queue that can only be polled: Wait and Arm fail.
	NoEvents bool
	// Vector is the completion vector, which selects the CPU of the interrupt: 0 to
	// Context.CompVectors - 1.
	Vector int
	// SingleGoroutine omits the lock. Then only one goroutine at a time may call Poll, the wait
	// methods, Arm, Resize, Moderate and Close. The same restriction includes closing the
	// queue's QPs and moving them to RESET, because this removes their completions from the
	// queue.
	SingleGoroutine bool
	// PD may be a parent domain with a thread domain. Then the queue is a SingleGoroutine one.
	PD *PD
}

// A QPConfig describes a queue pair: ibv_create_qp(3).
type QPConfig struct {
	Type   QPType
	SendCQ *CQ // must be large enough for the QP's completions: see CQConfig.Entries
	RecvCQ *CQ // nil: the same as SendCQ; an XRCSend QP has none
	// SRQ is the shared receive queue of the QP. If it is set, MaxRecvWR and MaxRecvSGE are
	// ignored: the QP has no receive queue of its own.
	SRQ *SRQ

	MaxSendWR  int // 0: no send queue
	MaxRecvWR  int // 0: no receive queue
	MaxSendSGE int // 0: 1
	MaxRecvSGE int // 0: 1
	MaxInline  int // bytes

	// SignalAll makes every send request have a completion, as if it were Signaled.
	SignalAll bool
	// CreateFlags change the QP's behavior.
	CreateFlags QPCreateFlags
	// RSS makes a raw packet QP distribute packets over WQs. Such a QP has no queues and no
	// CQs.
	RSS *RSSConfig
	// SingleGoroutine omits the locks. Then only one goroutine at a time may post to each of
	// the two queues, and Close must be called by the goroutine that uses both.
	SingleGoroutine bool

	// GID is the local address that Endpoint and Connect use. Nil means the best entry of the
	// first active port, as chosen by SelectGID.
	GID *GIDEntry
	// Path sets the traffic class, service level and flow label of packets to the peer.
	// Connect, Handshake and AHAttr use it.
	Path PathConfig
	// Access is the set of rights that peers have through this QP, within what each MR allows:
	// RemoteRead, RemoteWrite, RemoteAtomic. Connect sets it.
	Access Access
	// QKey is the Q_Key that datagrams to a UD QP must carry. Ready sets it. A Q_Key with bit
	// 31 set requires CAP_NET_RAW.
	QKey uint32
}

// QPCap is the size of a QP's queues: struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR  int
	MaxRecvWR  int
	MaxSendSGE int
	MaxRecvSGE int
	MaxInline  int // bytes
}

// An SRQConfig describes a shared receive queue: ibv_create_srq(3).
type SRQConfig struct {
	MaxWR  int // receives that the queue holds
	MaxSGE int // SGEs of each receive; 0: 1
	// Limit is the number of remaining receives below which [EventSRQLimitReached] is raised,
	// once. 0 means never. [SRQ.Modify] sets it again. mlx5 does not accept a Limit here.
	Limit int
	// SingleGoroutine omits the lock. Then only one goroutine at a time may use the queue.
	SingleGoroutine bool

	// XRCD makes the queue an XRC SRQ: it receives the messages that peers send to it through
	// XRCRecv QPs of the XRC domain. Their completions go to CQ, which must be set then. Its
	// memory belongs to the PD, whichever QP a message arrives on.
	XRCD *XRCD
	CQ   *CQ
}

// QPType is the transport service of a QP. The values are those of
// ibv_qp_type.
type QPType uint8

// The transport services.
const (
	RC QPType = 2 // reliable connection
	UC QPType = 3 // unreliable connection: no acknowledgments, no READ, no atomics
	UD QPType = 4 // unreliable datagram

	// The two ends of an extended reliable connection: see [XRCD].
	XRCSend QPType = 9  // initiator: sends, and each request names an SRQ of the peer
	XRCRecv QPType = 10 // target, created with XRCD.CreateQP
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
