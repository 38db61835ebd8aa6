package driver

import "github.com/goverbs/goverbs/internal/ioctl"

// A Provider opens devices of one kernel driver.
type Provider[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC any] interface {
	Driver
	// Open creates the kernel context with one call of get and sets up the provider's
	// own resources.
	Open(dev *ioctl.Device, get Command) (Context[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC], error)
}

// An Importer is a [Provider] whose contexts can be shared.
type Importer[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC any] interface {
	// Import sets up the provider's part of an existing context of the kernel. One
	// call of query, which has no input, returns what Open gets in the reply of its
	// command.
	Import(dev *ioctl.Device, query Command) (Context[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC], error)
}

// A Context is a provider's part of a uverbs.Context.
type Context[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC any] interface {
	AllocPD(alloc Command) (Reply, error)
	// CreateCQ creates the queue with one call of create. If the device uses memory that
	// the kernel's object does not pin, CreateCQ returns the queue also with an error:
	// it is retired when that object has been destroyed. So does CreateQP.
	CreateCQ(cfg *CQConfig, create CQCommand) (CQ[WC], Reply, error)
	// CreateQP creates the queues of a QP. For an XRCRecv QP and a QP with RSS, which
	// have no queues, it returns nil.
	CreateQP(
		cfg *QPConfig, env QPEnv[SendWR, RecvWR], create Command,
	) (QP[SendWR, RecvWR, SGE, Opcode, SendFlags], Reply, error)
	// CreateSRQ returns in the reply the number of receives that the queue can hold.
	CreateSRQ(cfg *SRQConfig, create Command) (SRQ[RecvWR], Reply, error)
	// CreateAH stores the address vector in av. Posts to the address copy it into
	// their WQE.
	CreateAH(attr *AHAttr, env *AHEnv, av *AV, create Command) (Reply, error)
	// Retire replaces the mappings of the device's registers with zero pages.
	Retire() error
}

// A CQ is a provider's part of a uverbs.CQ.
type CQ[WC any] interface {
	// Poll returns up to len(wcs) completions. It sets every field of the completions
	// it returns.
	Poll(wcs []WC) (int, error)
	// Ready reports whether Poll would return a completion or an error now.
	Ready() bool
	// Arm arms the queue. events is the number of the queue's events that have been
	// read.
	Arm(solicitedOnly bool, events uint32) error
	// Resize changes the queue's size with one call of resize, without losing
	// completions.
	Resize(entries int, resize ResizeCommand) (Reply, error)
	// Fail is called when no more completions will arrive: the device has been removed
	// or the queue has overrun. It may run concurrently with any other method. From
	// then on Ready returns true, and Poll returns err if the queue is empty. A later
	// call replaces err.
	Fail(err error)
	// Retire releases the queue's memory after the kernel object has been destroyed.
	// If inUse is true, calls may be running: Retire then replaces the memory with zero
	// pages, and a Poll that is running returns nothing or ErrClosed.
	Retire(inUse bool) error
}

// A QP is a provider's part of a uverbs.QP.
type QP[SendWR, RecvWR, SGE, Opcode, SendFlags any] interface {
	// PostSend posts wrs in order. If there is an error, n is the index of the
	// request that was refused. The requests before it have been posted and submitted
	// to the device.
	//
	// If the doorbell is a system call, it can fail after the requests have been
	// written to the ring. They cannot be removed: n includes them, and the error, a
	// *uverbs.Error, says when they will be sent. Submit behaves in the same way.
	PostSend(wrs []SendWR) (n int, err error)
	PostRecv(wrs []RecvWR) (n int, err error)

	// Begin starts a batch. The calls after it add operations, or complete the
	// operation that was added last. Submit returns the first error and then posts
	// nothing of the batch. Abort drops the batch.
	Begin()
	// Op adds an operation. op is one of the constants. imm is the immediate data, or
	// the key to invalidate, or the MSS. BIND_MW must be followed by Bind, FLUSH by Flush, and the
	// atomics and ATOMIC_WRITE by Atomic.
	Op(op Opcode, f SendFlags, wrID, raddr uint64, rkey, imm uint32)
	Atomic(compareAdd, swap uint64)
	// Bind names the window and the region, or the error of resolving them.
	Bind(b Bind, err error)
	// Flush sets the length in bytes, the uverbs.Placement and uverbs.Selectivity.
	Flush(n uint32, placement, selectivity uint8)
	SGE(s SGE)
	Inline(data []byte)
	// OpSGE is Op, with imm 0, and SGE in one call. OpInline is Op and Inline. All
	// arguments fit in registers.
	OpSGE(op Opcode, f SendFlags, wrID, raddr uint64, rkey uint32, s SGE)
	OpInline(op Opcode, f SendFlags, wrID, raddr uint64, rkey uint32, data []byte)
	// UDAddr names the destination of a datagram. ah may be nil or unfit.
	UDAddr(ah *AH, qpn, qkey uint32)
	RemoteSRQ(srqn uint32)
	// DCAddr names the destination of a request of a DCI, and its stream. ah may be nil or unfit.
	DCAddr(ah *AH, dctn uint32, key uint64, stream uint16)
	Submit() error
	Abort()

	// SendsOutstanding and RecvsOutstanding return how many requests occupy a queue,
	// as far as the provider knows.
	SendsOutstanding() int
	RecvsOutstanding() int

	// Reset empties both queues, after the QP has moved to RESET.
	Reset() error
	// Retire releases the memory of the queues after the kernel object has been
	// destroyed. If inUse is true, posts may be running, and polls of the QP's CQs:
	// Retire then replaces the memory with zero pages. So must a provider whose Poll
	// reads the memory of QPs that completions name.
	Retire(inUse bool) error
}

// An SRQ is a provider's part of a uverbs.SRQ.
type SRQ[RecvWR any] interface {
	PostRecv(wrs []RecvWR) (n int, err error)
	// Modify changes the queue with one call of modify, without losing receives.
	// maxWR is the new number of receives, or 0 if it does not change.
	Modify(maxWR int, modify Command) error
	// Retire replaces the queue's memory with zero pages, after the kernel object has
	// been destroyed.
	Retire() error
}
