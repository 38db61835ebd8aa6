package uverbs

import (
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/internal/ioctl"
)

// This file defines the interface between the verbs and the providers, which
// implement the queues of one kernel driver each. All providers are in this module.
// A program links those it needs by importing them for their side effect, or all of
// them:
//
//	import _ "github.com/goverbs/goverbs/provider/all"
//
// Rules for calls of providers:
//
//   - Calls on one queue never overlap, except that Retire of a
//     single-goroutine queue may overlap a post or poll that is still running.
//     The caller serialises the send half of a QP (PostSend and the batch methods),
//     its receive half (PostRecv) and its Retire. Send and receive half may run
//     concurrently. Calls on one SRQ are serialised too.
//   - A provider keeps no argument, and nothing that an argument points to, after the
//     call returns. Slices may be on a stack.
//   - Posting and polling do not allocate.

// A ProviderCommand issues the kernel command that creates an object. uhwIn and
// uhwOut are the driver's part of request and reply. If the command fails, the
// provider may call it again, for example with another layout.
type ProviderCommand func(uhwIn, uhwOut []byte) (ProviderReply, error)

// A ProviderCQCommand is a [ProviderCommand] that creates a CQ. It also accepts
// attributes of the driver.
type ProviderCQCommand func(uhwIn, uhwOut []byte, attrs ...ProviderAttr) (ProviderReply, error)

// A ProviderAttr is a driver's attribute in a command.
type ProviderAttr struct {
	ID    uint16
	Value uint32
}

// A ProviderReply is the part of a create command's reply that all drivers have in
// common.
type ProviderReply struct {
	Handle  uint32 // of the object within its context
	Number  uint32 // QPN of a QP, SRQN of an XRC SRQ
	Entries int    // size of a CQ, as created by the kernel
	Cap     QPCap  // sizes of a QP, as created by the kernel
	SRQ     SRQAttr
}

// QPCap is the size of a QP's queues: struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR  int
	MaxRecvWR  int
	MaxSendSGE int
	MaxRecvSGE int
	MaxInline  int // bytes
}

// A Provider opens devices of one kernel driver.
type Provider interface {
	// DriverID is the kernel's number of the driver: RDMA_DRIVER_*.
	DriverID() uint32
	// ABI returns the range of the driver's uverbs ABI versions that the provider
	// supports.
	ABI() (lowest, highest uint64)
	// Open creates the kernel context with one call of get and sets up the provider's
	// own resources.
	Open(dev *ioctl.Device, get ProviderCommand) (ProviderContext, error)
}

// A ProviderContext is a provider's part of a [Context].
type ProviderContext interface {
	AllocPD(alloc ProviderCommand) (ProviderReply, error)
	CreateCQ(cfg *CQConfig, create ProviderCQCommand) (ProviderCQ, ProviderReply, error)
	// CreateQP creates the queues of qp. It must not call methods of qp, which is not
	// complete yet. For an XRCRecv QP, which has no queues, it returns nil.
	CreateQP(qp *QP, cfg *QPConfig, create ProviderCommand) (ProviderQP, ProviderReply, error)
	// CreateSRQ may change cfg.MaxWR before it calls create, so that the kernel
	// counts slots that the provider reserves. The reply contains the number of
	// receives that the queue can hold.
	CreateSRQ(pd *PD, cfg *SRQConfig, create ProviderCommand) (ProviderSRQ, ProviderReply, error)
	// CreateAH stores the address vector in av. Posts to the address copy it into
	// their WQE.
	CreateAH(pd *PD, attr *AHAttr, av *ProviderAV, create ProviderCommand) (ProviderReply, error)
	// Retire replaces the mappings of the device's registers with zero pages.
	Retire() error
}

// A ProviderCQ is a provider's part of a [CQ].
type ProviderCQ interface {
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
	Resize(entries int, resize ProviderCommand) (ProviderReply, error)
	// Retire replaces the queue's memory with zero pages, after the kernel object has
	// been destroyed. A Poll that is still running then returns nothing or ErrClosed.
	Retire() error
}

// A ProviderPurger is a ProviderCQ that needs a queue in order to interpret the
// queue's completions.
type ProviderPurger interface {
	// Purge drops all unpolled completions of q and forgets q. q is a ProviderQP, the
	// ProviderSRQ of an XRC SRQ, or a ProviderWQ, which the kernel has destroyed or
	// moved to RESET. Purge is not called while the Context is being closed.
	Purge(q any)
}

// A ProviderFailer is a ProviderCQ that can report that no more completions will
// arrive. The CQs of all providers implement it.
type ProviderFailer interface {
	// Fail is called when the device has been removed or the queue has overrun. It
	// may run concurrently with any other method. From then on Ready returns true,
	// and Poll returns err if the queue is empty. A later call replaces err.
	Fail(err error)
}

// A ProviderUnpolled is a ProviderCQ of a device whose requests occupy their queue
// until their completions are polled.
type ProviderUnpolled interface {
	// Unpolled returns how many requests in q's send and receive queue the unpolled
	// completions will release. It polls none of them.
	Unpolled(q ProviderQP) (sends, recvs int)
}

// A ProviderOp is an opcode and its flags. It is one word so that all arguments of
// OpSGE and OpInline fit in registers.
type ProviderOp uint32

// ProviderOpOf returns the ProviderOp of op and f.
func ProviderOpOf(op Opcode, f SendFlags) ProviderOp { return ProviderOp(op) | ProviderOp(f)<<8 }

// Opcode returns the opcode.
func (o ProviderOp) Opcode() Opcode { return Opcode(o) }

// Flags returns the flags.
func (o ProviderOp) Flags() SendFlags { return SendFlags(o >> 8) }

// A ProviderQP is a provider's part of a [QP].
type ProviderQP interface {
	// PostSend posts wrs in order. If there is an error, n is the index of the
	// request that was refused. The requests before it have been posted and submitted
	// to the device.
	//
	// If the doorbell is a system call, it can fail after the requests have been
	// written to the ring. They cannot be removed: n includes them, and the error, an
	// *Error, says when they will be sent. Submit behaves in the same way.
	PostSend(wrs []SendWR) (n int, err error)
	PostRecv(wrs []RecvWR) (n int, err error)

	// Begin starts a batch. The calls after it add operations, or complete the
	// operation that was added last. Submit returns the first error and then posts
	// nothing of the batch. Abort drops the batch.
	Begin()
	// Op adds an operation. The opcode of op is one of the constants. imm is the
	// immediate data, or the key to invalidate. BIND_MW must be followed by Bind,
	// FLUSH by Flush, and the atomics and ATOMIC_WRITE by Atomic. The arguments of
	// Bind are the results of [ProviderBindOf].
	Op(op ProviderOp, wrID, raddr uint64, rkey, imm uint32)
	Atomic(compareAdd, swap uint64)
	Bind(b ProviderBind, err error)
	Flush(n uint32, p Placement, s Selectivity)
	SGE(s SGE)
	Inline(data []byte)
	// OpSGE is Op and SGE in one call. OpInline is Op and Inline.
	OpSGE(op ProviderOp, wrID, raddr uint64, rkey, imm uint32, s SGE)
	OpInline(op ProviderOp, wrID, raddr uint64, rkey, imm uint32, data []byte)
	UDAddr(ah *AH, qpn, qkey uint32)
	RemoteSRQ(srqn uint32)
	Submit() error
	Abort()

	// SendsOutstanding and RecvsOutstanding return how many requests occupy a queue,
	// as far as the provider knows.
	SendsOutstanding() int
	RecvsOutstanding() int

	// Reset empties both queues, after the QP has moved to RESET.
	Reset() error
	// Retire replaces the memory of the queues with zero pages, after the kernel
	// object has been destroyed.
	Retire() error
}

// A ProviderSRQ is a provider's part of an [SRQ].
type ProviderSRQ interface {
	PostRecv(wrs []RecvWR) (n int, err error)
	// Modify changes the queue with one call of modify, without losing receives.
	Modify(a *SRQAttr, m SRQMask, modify ProviderCommand) error
	// Retire replaces the queue's memory with zero pages, after the kernel object has
	// been destroyed.
	Retire() error
}

// A ProviderAV is the address vector of an [AH] in the provider's format, as
// written by CreateAH.
type ProviderAV [6]uint64

// ProviderAVOf returns the address vector of ah, for a request of a QP of pd, see
// [ProviderPDOf]. The caller must not change it. The errors are those of the post:
// [ErrNoAH] if ah is nil, [ErrClosed] if it is closed, and [ErrForeignAH] if it
// belongs to another PD.
func ProviderAVOf(ah *AH, pd *PD) (*ProviderAV, error) {
	if ah == nil || ah.owner.Load() != pd {
		return nil, ah.unfit()
	}
	return &ah.av, nil
}

// unfit returns the error for an AH that cannot be used.
func (a *AH) unfit() error {
	switch {
	case a == nil:
		return ErrNoAH
	case a.owner.Load() == nil:
		return errClosedAH
	}
	return ErrForeignAH
}

// ProviderSRQOf returns the provider's part of s.
func ProviderSRQOf(s *SRQ) ProviderSRQ { return s.impl }

// ProviderMTU queries the longest message that a UD QP can send now, in bytes. It
// returns [MaxMessage] if the query fails. Providers call it for a message that is
// longer than the last known MTU. So they notice when the MTU of an interface has
// been raised. When it has been lowered, they notice only after the QP has been
// moved to RESET.
func ProviderMTU(q *QP) uint64 {
	a, err := q.ctx.QueryPort(int(q.port.Load()))
	if err != nil || a.ActiveMTU.Bytes() == 0 {
		return MaxMessage
	}
	return uint64(a.ActiveMTU.Bytes())
}

// A ProviderFlusher is a ProviderQP whose device does not flush receives that are
// posted in state ERR.
type ProviderFlusher interface {
	// FlushRecv is called after PostRecv in a QP that Modify has moved to ERR.
	FlushRecv() error
}

// A ProviderFinisher is a ProviderQP whose sends may finish without a completion.
type ProviderFinisher interface {
	// FinishSends is called once for a QP in ERR, while nothing is posted to it. The
	// provider must release the last request of the send queue like any other. This
	// must not produce a completion in Poll, but it may wake a waiter.
	FinishSends()
}

var providers struct {
	sync.Mutex
	byDriver map[uint32]Provider
}

// RegisterProvider registers a provider. Providers call it from init. It panics if
// the driver already has one.
func RegisterProvider(p Provider) {
	providers.Lock()
	defer providers.Unlock()
	id := p.DriverID()
	if providers.byDriver[id] != nil {
		panic(fmt.Sprintf("uverbs: two providers for driver %d", id))
	}
	if providers.byDriver == nil {
		providers.byDriver = make(map[uint32]Provider)
	}
	providers.byDriver[id] = p
}

// HasProvider reports whether any provider is linked. Without a provider no device
// can be opened.
func HasProvider() bool {
	providers.Lock()
	defer providers.Unlock()
	return len(providers.byDriver) > 0
}

func providerOf(driver uint32) Provider {
	providers.Lock()
	defer providers.Unlock()
	return providers.byDriver[driver]
}
