package uverbs

// This file is the part of the boundary to providers that devices with raw
// Ethernet have.

// A ProviderWQs is a ProviderContext of a device with work queues. Its providers
// take QPs of type RawPacket too: one with QPConfig.RSS has no queues.
type ProviderWQs interface {
	CreateWQ(pd *PD, cfg *WQConfig, create ProviderCommand) (ProviderWQ, ProviderReply, error)
}

// A ProviderWQ is a vendor's work queue. PostRecv, Reset and Retire are
// serialised by the caller.
type ProviderWQ interface {
	PostRecv(wrs []RecvWR) (n int, err error)
	// Modify changes the queue by one call of modify.
	Modify(modify ProviderCommand) error
	// Outstanding is how many receives occupy the queue, as far as it shows by
	// now.
	Outstanding() int
	// Reset empties the queue: it has moved to RESET.
	Reset() error
	// Retire puts zero pages where the queue was, after the kernel object is
	// gone.
	Retire() error
}

// A ProviderStateful is a ProviderQP that wants to know of its states.
type ProviderStateful interface {
	// Entered is called when Modify has moved the QP to s. Neither half is in
	// use meanwhile.
	Entered(s QPState)
}

// ProviderChecksums tells whether the device fills in checksums of raw packets.
// Providers ask at the first post that wants it.
func ProviderChecksums(q *QP) bool {
	a, err := q.ctx.limits()
	return err == nil && a.CapFlags&DeviceRawIPCsum != 0
}
