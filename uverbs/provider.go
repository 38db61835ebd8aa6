package uverbs

import (
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/internal/ioctl"
)

// This file is the boundary between the verbs and the packages that know one
// vendor's queues. Providers live in this module; a program links those it
// wants by importing them for their side effect, or all of them:
//
//	import _ "github.com/goverbs/goverbs/provider/all"
//
// The contract that every provider keeps:
//
//   - Calls on one queue never overlap, except that Retire of a
//     single-goroutine queue may overlap a straggling post or poll. A QP's
//     send half (PostSend and the batch methods), its receive half (PostRecv)
//     and its Retire are serialised by the caller; send and receive half run
//     side by side. Calls on one SRQ are serialised too.
//   - No argument, and nothing that an argument points to, is kept after the
//     call returns. Slices may lie on a stack.
//   - Posting and polling allocate nothing.

// A ProviderCommand issues the kernel command that makes an object, with the
// vendor's part of request and reply. It may be called again, with another
// layout, when it failed.
type ProviderCommand func(uhwIn, uhwOut []byte) (ProviderReply, error)

// A ProviderReply is the part of a create command's reply that is not the
// vendor's.
type ProviderReply struct {
	Handle  uint32 // of the object, within its context
	Number  uint32 // of a QP: its QPN; of an XRC SRQ: its SRQN
	Entries int    // of a CQ: how many entries the kernel made
	Cap     QPCap  // of a QP: what the kernel made of the request
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
	// ABI is the range of the driver's uverbs ABI versions that it speaks.
	ABI() (lowest, highest uint64)
	// Open makes the kernel context by one call of get and sets up what the
	// vendor needs beside it.
	Open(dev *ioctl.Device, get ProviderCommand) (ProviderContext, error)
}

// A ProviderContext is a vendor's part of a [Context].
type ProviderContext interface {
	AllocPD(alloc ProviderCommand) (ProviderReply, error)
	CreateCQ(cfg *CQConfig, create ProviderCommand) (ProviderCQ, ProviderReply, error)
	// CreateQP makes the queues of qp, which is under construction: ask it
	// nothing yet. The answer is nil for an XRCRecv QP, which has none.
	CreateQP(qp *QP, cfg *QPConfig, create ProviderCommand) (ProviderQP, ProviderReply, error)
	CreateSRQ(pd *PD, cfg *SRQConfig, create ProviderCommand) (ProviderSRQ, ProviderReply, error)
	// CreateAH writes to av what posts to the address copy into their WQE.
	CreateAH(pd *PD, attr *AHAttr, av *ProviderAV, create ProviderCommand) (ProviderReply, error)
	// Retire puts zero pages where the device's registers were mapped.
	Retire() error
}

// A ProviderCQ is a vendor's completion queue.
type ProviderCQ interface {
	// Poll takes up to len(wcs) completions. It sets every field of those it
	// returns.
	Poll(wcs []WC) (int, error)
	// Ready tells whether a completion, or an error, could be polled now.
	Ready() bool
	// Arm asks for an event. events is how many of the queue have been read.
	Arm(solicitedOnly bool, events uint32) error
	// Resize changes the queue by one call of resize, and loses no completion.
	Resize(entries int, resize ProviderCommand) (ProviderReply, error)
	// Retire puts zero pages where the queue was, after the kernel object is
	// gone. A straggling Poll then takes nothing, or answers ErrClosed.
	Retire() error
}

// A ProviderPurger is a ProviderCQ whose entries make no sense without the
// queue that they are of.
type ProviderPurger interface {
	// Purge drops the completions that have not been polled of q, which is a
	// ProviderQP, the ProviderSRQ of an XRC SRQ or a ProviderWQ, and forgets q.
	// The kernel has destroyed it, or moved it to RESET. It is not called while
	// the Context is being closed.
	Purge(q any)
}

// A ProviderLoser is a ProviderCQ that a device has to fill.
type ProviderLoser interface {
	// Lose is called when the device is gone, beside any other call. From then on
	// Ready is true, and Poll answers [ErrDeviceGone] when the queue is empty.
	Lose()
}

// A ProviderUnpolled is a ProviderCQ of a device whose queues hold requests until
// their completions are polled.
type ProviderUnpolled interface {
	// Unpolled tells how many requests of q's send and receive queue the
	// completions give back that have not been polled. It takes none.
	Unpolled(q ProviderQP) (sends, recvs int)
}

// A ProviderQP is a vendor's queue pair.
type ProviderQP interface {
	// PostSend posts wrs in order. On an error, n is the index of the bad
	// request; those before it are posted and the device knows of them.
	//
	// Where the doorbell is a system call, it can fail after the requests were
	// written. They cannot be taken back: n counts them, and the error, an
	// *Error, says when they go out. Submit does the same.
	PostSend(wrs []SendWR) (n int, err error)
	PostRecv(wrs []RecvWR) (n int, err error)

	// Begin starts a batch. The calls after it add operations and fill in the
	// one added last; the first thing that is wrong is kept and returned by
	// Submit, which then posts nothing of the batch. Abort drops the batch.
	Begin()
	// op is one of the constants. imm is the immediate data, or the key that is invalidated. BIND_MW,
	// FLUSH and the atomics, ATOMIC_WRITE among them, are followed by a call of
	// Bind, Flush or Atomic. Bind takes what [ProviderBindOf] answers.
	Op(op Opcode, f SendFlags, wrID, raddr uint64, rkey, imm uint32)
	Atomic(compareAdd, swap uint64)
	Bind(b ProviderBind, err error)
	Flush(n uint32, p Placement, s Selectivity)
	SGE(s SGE)
	Inline(data []byte)
	// These are Op and SGE, or Op and Inline, in one call.
	SendSGE(f SendFlags, wrID uint64, s SGE)
	WriteSGE(f SendFlags, wrID, raddr uint64, rkey uint32, s SGE)
	ReadSGE(f SendFlags, wrID, raddr uint64, rkey uint32, s SGE)
	SendInline(f SendFlags, wrID uint64, data []byte)
	WriteInline(f SendFlags, wrID, raddr uint64, rkey uint32, data []byte)
	UDAddr(ah *AH, qpn, qkey uint32)
	RemoteSRQ(srqn uint32)
	Submit() error
	Abort()

	// How many requests occupy a queue, as far as it shows by now.
	SendsOutstanding() int
	RecvsOutstanding() int

	// Reset empties both queues: the QP has moved to RESET.
	Reset() error
	// Retire puts zero pages where the queues were, after the kernel object
	// is gone.
	Retire() error
}

// A ProviderSRQ is a vendor's shared receive queue.
type ProviderSRQ interface {
	PostRecv(wrs []RecvWR) (n int, err error)
	// Modify changes the queue by one call of modify. No receive is lost.
	Modify(a *SRQAttr, m SRQMask, modify ProviderCommand) error
	// Retire puts zero pages where the queue was, after the kernel object is
	// gone.
	Retire() error
}

// A ProviderAV is the vendor's form of an [AH], as CreateAH wrote it.
type ProviderAV [6]uint64

// ProviderAVOf returns the vendor's form of ah for a request of a QP of pd, see [ProviderPDOf], or
// the error of the post when ah is nil, closed, or of another PD. The AV is to
// be read only. The errors: [ErrNoAH], [ErrClosed] and [ErrForeignAH].
func ProviderAVOf(ah *AH, pd *PD) (*ProviderAV, error) {
	if ah == nil || ah.owner.Load() != pd {
		return nil, ah.unfit()
	}
	return &ah.av, nil
}

// unfit says why an AH cannot be named.
func (a *AH) unfit() error {
	switch {
	case a == nil:
		return ErrNoAH
	case a.owner.Load() == nil:
		return errClosedAH
	}
	return ErrForeignAH
}

// ProviderSRQOf returns the vendor's queue of s.
func ProviderSRQOf(s *SRQ) ProviderSRQ { return s.impl }

// ProviderMTU asks for the longest message that a UD QP can send now, in
// bytes. It is [MaxMessage] where that cannot be told. Providers call it when a
// message is longer than what they know of: that an interface's MTU was raised
// is noticed so. That it was lowered is not, until the QP goes through RESET.
func ProviderMTU(q *QP) uint64 {
	a, err := q.ctx.QueryPort(int(q.port.Load()))
	if err != nil || a.ActiveMTU.Bytes() == 0 {
		return MaxMessage
	}
	return uint64(a.ActiveMTU.Bytes())
}

// A ProviderFlusher is a ProviderQP whose receives are not flushed by
// themselves when they are posted in the state ERR.
type ProviderFlusher interface {
	// FlushRecv is called after PostRecv in a QP that Modify has moved to ERR.
	FlushRecv() error
}

// A ProviderFinisher is a ProviderQP of whose requests some may be over without
// a sign.
type ProviderFinisher interface {
	// FinishSends is called once for a QP in ERR, to which nothing is posted
	// meanwhile: the last request of the send queue is to be given back like
	// others. Nothing of that may show in what Poll gives; a waiter may wake.
	FinishSends()
}

var providers struct {
	sync.Mutex
	byDriver map[uint32]Provider
}

// RegisterProvider makes a provider known. Providers call it from init; a
// second one for the same driver is a programming error and panics.
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

func providerOf(driver uint32) Provider {
	providers.Lock()
	defer providers.Unlock()
	return providers.byDriver[driver]
}
