package uverbs

// This file contains the provider interfaces of devices with raw Ethernet.

// A ProviderWQs is a ProviderContext of a device with work queues. It also supports
// QPs of type RawPacket. Those with QPConfig.RSS have no queues.
type ProviderWQs interface {
	CreateWQ(pd *PD, cfg *WQConfig, create ProviderCommand) (ProviderWQ, ProviderReply, error)
}

// A ProviderWQ is a provider's part of a [WQ]. The caller serialises PostRecv,
// Reset and Retire.
type ProviderWQ interface {
	PostRecv(wrs []RecvWR) (n int, err error)
	// Modify changes the queue with one call of modify.
	Modify(modify ProviderCommand) error
	// Outstanding returns how many receives occupy the queue, as far as the provider
	// knows.
	Outstanding() int
	// Reset empties the queue, after it has moved to RESET.
	Reset() error
	// Retire replaces the queue's memory with zero pages, after the kernel object has
	// been destroyed.
	Retire() error
}

// A ProviderStateful is a ProviderQP that is notified of state changes.
type ProviderStateful interface {
	// Entered is called when Modify has moved the QP to s. Neither half of the QP is
	// in use meanwhile.
	Entered(s QPState)
}

// A ProviderRdAtomic is a ProviderQP that refuses READs and atomics with
// [ErrRdAtomic] if the connection allows none.
type ProviderRdAtomic interface {
	// SetRdAtomic is called when Modify has set QPAttr.MaxRdAtomic. Neither half of
	// the QP is in use meanwhile.
	SetRdAtomic(n uint8)
}

// ProviderChecksums reports whether the device fills in checksums of raw packets.
// Providers call it at the first post that uses IPCsum.
func ProviderChecksums(q *QP) bool {
	a, err := q.ctx.limits()
	return err == nil && a.CapFlags&DeviceRawIPCsum != 0
}
