package driver

// Memory returns n bytes of the program's memory for a ring, beginning at a page, if
// the queue's parent domain provides memory. op is the operation for errors. The
// result is nil without an error if the provider has to map the memory itself. The
// bytes are zero. The caller passes them to free when the queue is no longer in use.
// A nil Memory provides none.
type Memory func(op string, n int) (b []byte, free func([]byte), err error)

// Get calls m. It returns nil if m is nil.
func (m Memory) Get(op string, n int) (b []byte, free func([]byte), err error) {
	if m == nil {
		return nil, nil, nil
	}
	return m(op, n)
}

// A CQConfig is what a provider needs to know of a new CQ.
type CQConfig struct {
	// Entries is what the create command requests. The provider may change it before it calls create.
	Entries int
	Events  bool // the CQ has a completion channel
	Memory  Memory
	// Wake wakes a goroutine that waits for a completion. A provider calls it for completions of Poll that the device
	// does not notify of. It is nil if the CQ has no completion channel.
	Wake func()
}

// An SRQConfig is what a provider needs to know of a new SRQ.
type SRQConfig struct {
	// MaxWR and MaxSGE are what the create command requests. The provider may change
	// MaxWR before it calls create, so that the kernel counts slots that the provider
	// reserves.
	MaxWR, MaxSGE int
	Limit         int
	XRC           bool
	Memory        Memory
}

// A WQConfig is what a provider needs to know of a new WQ.
type WQConfig struct {
	MaxWR, MaxSGE int
	Memory        Memory
}

// A QPEnv is what a new QP uses of other objects. The provider may keep the
// objects as long as the QP. Owner may be nil in tests that do not need it.
type QPEnv[SendWR, RecvWR any] struct {
	SRQ    SRQ[RecvWR] // nil if the QP has a receive queue
	TD     TD          // of the QP's parent domain, or nil
	PD     *PD         // to which the AHs of requests must belong
	Memory Memory
	Owner  QPOwner[SendWR]
	RSS    *RSSConfig // of a raw packet QP without queues, or nil
	SendCQ any        // the provider's CQ, or nil
	RecvCQ any        // as SendCQ
}

// A QPOwner is the uverbs.QP of a provider's QP.
type QPOwner[SendWR any] interface {
	// Bind checks an OpBindMW request and resolves its window and region.
	Bind(wr *SendWR) (Bind, error)
	// MTU queries the longest message that a UD QP can send now, in bytes. If the
	// query fails, it returns the maximum of all messages. Providers call it for a
	// message that is longer than the last known MTU. So they notice when the MTU of
	// an interface has been raised. When it has been lowered, they notice only after
	// the QP has been moved to RESET.
	MTU() uint64
	// Checksums reports whether the device fills in checksums of raw packets.
	// Providers call it at the first post that requests one.
	Checksums() bool
	// DoorbellError returns the error of a post whose doorbell is a system call that
	// the kernel refused with err.
	DoorbellError(err error) error
}

// An AHEnv provides what a new AH depends on.
type AHEnv struct {
	// Ethernet reports whether the link layer of the port is Ethernet.
	Ethernet func() (bool, error)
	// RoCEv2 reports whether the source GID is of type RoCE v2.
	RoCEv2 func() (bool, error)
}
