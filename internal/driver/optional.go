package driver

// This file contains the interfaces that not all providers implement.

// A Purger is a [CQ] that needs a queue in order to interpret the queue's
// completions.
type Purger interface {
	// Purge drops all unpolled completions of q and forgets q. q is a QP, the SRQ of
	// an XRC SRQ, or a WQ, which the kernel has destroyed or moved to RESET. Purge is
	// not called while the Context is being closed.
	Purge(q any)
}

// A Dropper is an [SRQ] of a device whose [Purger] drops unpolled completions of receives of the SRQ.
type Dropper interface {
	// OnDrop has f called with the WRID of each such receive. f does not post.
	OnDrop(f func(wrID uint64))
}

// An Unpolled is a [CQ] of a device whose requests occupy their queue until their
// completions are polled.
type Unpolled interface {
	// Unpolled returns how many requests in the send and receive queue of q, a QP,
	// the unpolled completions will release. It polls none of them.
	Unpolled(q any) (sends, recvs int)
}

// A Flusher is a [QP] whose device does not flush receives that are posted in state
// ERR.
type Flusher interface {
	// FlushRecv is called after PostRecv in a QP that Modify has moved to ERR.
	FlushRecv() error
}

// A RawPoster is a [QP] to which programs may post requests in the format of the device.
type RawPoster interface {
	// RawWQE adds a request to a batch. It ends the request that was added last, and
	// nothing can be added to it. An error is returned by Submit.
	RawWQE(wrID uint64, wqe []byte)
}

// A Finisher is a [QP] whose sends may finish without a completion.
type Finisher interface {
	// Unfinished reports whether the last request of the send queue may have finished
	// without a completion, so that it is never released.
	Unfinished() bool
	// FinishSends is called for such a QP in ERR, while nothing is posted to it. The
	// provider must release the last request of the send queue like any other. This
	// must not produce a completion in Poll, but it may wake a waiter. It may occupy
	// one entry of the CQ, for which the caller has checked that there is room.
	// FinishSends reports whether it could do so: a full send queue may have no room.
	FinishSends() bool
}

// A Stateful is a [QP] that is notified of state changes.
type Stateful interface {
	// Entered is called when Modify has moved the QP to a state, a uverbs.QPState.
	// Neither half of the QP is in use meanwhile.
	Entered(state uint8)
}

// An RdAtomic is a [QP] that refuses READs and atomics with uverbs.ErrRdAtomic if
// the connection allows none.
type RdAtomic interface {
	// SetRdAtomic is called when Modify has set QPAttr.MaxRdAtomic. Neither half of
	// the QP is in use meanwhile.
	SetRdAtomic(n uint8)
}

// A Numbered is a [QP] whose requests contain the numbers of their packets.
type Numbered interface {
	// SetMTU is called when Modify has set QPAttr.PathMTU, with the MTU in bytes, and SetSendPSN when it has set
	// QPAttr.SQPSN. Neither half of the QP is in use meanwhile.
	SetMTU(n int)
	SetSendPSN(psn uint32)
}

// An Inliner is a [Context] of a device whose requests have little room for data.
type Inliner interface {
	// MaxInline returns the largest uverbs.QPConfig.MaxInline.
	MaxInline() int
}

// A Limited is an [SRQ] whose provider tells the device the limit of the create command.
type Limited interface {
	// SetLimit is called when Modify has set SRQAttr.Limit. It is serialised with PostRecv.
	SetLimit(n int)
}

// An ECE is a [QP] that supports vendor-specific options: uverbs.ECE.
type ECE interface {
	// QueryECE returns the options that the device supports, or those that were
	// enabled.
	QueryECE() (vendorID, options uint32)
	// SetECE records the options that MODIFY_QP is to request.
	SetECE(vendorID, options uint32) error
	// ModifyECE returns the driver's input of the next MODIFY_QP and the length of its
	// reply, or nil if no option is requested. toInit reports whether the command moves
	// the QP to INIT.
	ModifyECE(toInit bool) (uhwIn []byte, replyLen int)
	// ModifiedECE parses the reply.
	ModifiedECE(uhwOut []byte)
}

// A DCs is a [Context] that supports QPs of types DCI and DCT.
type DCs interface {
	// SupportsDC is not called. The device may lack the transport: the kernel then refuses to
	// create such a QP.
	SupportsDC()
}

// An SRDs is a [Context] that supports QPs of type SRD.
type SRDs interface {
	// SupportsSRD is not called.
	SupportsSRD()
}

// A DCT is a [QP] of type DCT. It is also an [ECE] whose MODIFY_QP always has an input and a reply
// of the driver.
type DCT interface {
	// Number returns the number of the DCT, as of the last reply of MODIFY_QP.
	Number() uint32
}

// A DataOrder is a [QP] that guarantees an order of data.
type DataOrder interface {
	// DataInOrder returns the uverbs.DataOrder of a uverbs.Opcode.
	DataInOrder(opcode uint8) uint32
}

// A TDs is a [Context] that supports thread domains.
type TDs interface {
	AllocTD() (TD, error)
}

// A TD is a provider's part of a uverbs.TD.
type TD interface {
	// Retire releases the domain's resources. Its queues have been closed.
	Retire() error
}

// A PDImporter is a [Context] that can check whether a PD with a given handle
// exists.
type PDImporter interface {
	ImportPD(handle uint32) error
}

// A NullMR is a [Context] of a device that may support null MRs.
type NullMR interface {
	// NullKey returns the lkey of the null MR. ok is false if the device has none.
	NullKey() (lkey uint32, ok bool)
}

// A DMs is a [Context] of a device that has memory.
type DMs interface {
	// AllocDM allocates n bytes of device memory, aligned to align bytes or, if it is
	// 0, to any address, and maps it. It returns the kernel's handle.
	AllocDM(n, align int) (dm DM, handle uint32, err error)
	// ImportDM maps existing device memory of the kernel's context. It returns its size
	// in bytes.
	ImportDM(handle uint32) (dm DM, n int, err error)
}

// A DM is a provider's part of a uverbs.DM. Its methods are safe for concurrent use.
type DM interface {
	// ReadAt copies device memory at off to p, and WriteAt copies p to it. off and the
	// length of p are multiples of 4, and the range is within the memory. After Retire,
	// they access zero pages.
	ReadAt(p []byte, off int)
	WriteAt(p []byte, off int)
	// Retire replaces the mapping with zero pages, after the kernel object has been
	// destroyed.
	Retire() error
}

// WakeCQ makes the waiters of a uverbs.CQ look whether it is ready, for a provider whose device raises no event for a
// completion. Package uverbs sets it.
var WakeCQ func(cq any)

// WithDM calls f with the provider's part of a uverbs.DM, which is not closed
// meanwhile, and explains the error of f. Package uverbs sets it.
var WithDM func(dm any, op string, f func(DM) error) error

// A Clock is a [Context] of a device with a readable clock.
type Clock interface {
	QueryClock() (uint64, error)
}

// A WallClock is a [Context] of a device whose clock the kernel relates to real
// time.
type WallClock interface {
	// WallClock returns the time, in nanoseconds since 1970, at which the clock had
	// this count.
	WallClock(count uint64) (ns uint64, err error)
}

// A Describer is a [Context] of a device whose kernel driver adds attributes to the reply of QUERY_DEVICE.
type Describer interface {
	// DescribeLen returns the length of the driver's part of the reply. The kernel may return less, and the rest is
	// zero.
	DescribeLen() int
	// Describe parses the driver's part.
	Describe(uhwOut []byte) Description
}

// A Description has attributes of uverbs.DeviceAttr and ether.DeviceAttr.
type Description struct {
	MaxTSO, TSOQPTypes            uint32
	HashFields                    uint64
	HashFunctions                 uint8
	MinRate, MaxRate, RateQPTypes uint32
}

// An MRExtender is a [Context] whose kernel driver has a part in REG_MR.
type MRExtender interface {
	// RegMRParts returns the driver's part of the command, and the length of that of its reply.
	RegMRParts() (in []byte, out int)
}

// An MRAccessor is a [Context] of a device that may leave it to the CPU to copy short
// messages to the memory of their SGEs, or to copy the beginning of a frame from
// there.
type MRAccessor interface {
	// SetMRs is called once, before any object is created.
	SetMRs(m *MRs)
}

// A WQs is a [Context] of a device with work queues. It also supports QPs of type
// RawPacket. Those with QPEnv.RSS have no queues.
type WQs[RecvWR any] interface {
	CreateWQ(cfg *WQConfig, create Command) (WQ[RecvWR], Reply, error)
}

// A WQ is a provider's part of an ether.WQ. The caller serialises PostRecv, Reset
// and Retire.
type WQ[RecvWR any] interface {
	PostRecv(wrs []RecvWR) (n int, err error)
	// Modify changes the queue with one call of modify.
	Modify(modify Command) error
	// Outstanding returns how many receives occupy the queue, as far as the provider
	// knows.
	Outstanding() int
	// Reset empties the queue, after it has moved to RESET.
	Reset() error
	// Retire replaces the queue's memory with zero pages, after the kernel object has
	// been destroyed.
	Retire() error
}
