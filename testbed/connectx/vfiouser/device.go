package vfiouser

// A Device is a PCI device. The server calls its methods inside Server.Run, one
// at a time.
type Device interface {
	// Region returns the description of a region: BAR0 to BAR5, ROM, Config or
	// VGA. It is the zero Region if the device does not have the region. It
	// must not change.
	Region(index int) Region

	// IRQs returns the number of interrupts of a kind, at most MaxIRQs. It must
	// not change.
	IRQs(kind IRQ) int

	// Connect is called when a machine has connected. The host is valid until
	// Disconnect. The machine adds memory over time, and enables interrupts
	// when the guest does.
	Connect(h *Host)

	// Disconnect is called when the machine has disconnected or the connection
	// was lost. Its memory and interrupts are no longer available.
	Disconnect()

	// Read fills p with the bytes at an offset of a region, in the order of
	// their addresses, and Write stores p there. The range is within the
	// region, with any length and alignment that the guest uses; the machine
	// may access many bytes at once. An error fails the message, with the errno
	// that the error wraps, or EIO. Read and Write must not retain p.
	Read(region int, offset uint64, p []byte) error
	Write(region int, offset uint64, p []byte) error

	// Reset resets the device to its state when it was connected. The machine
	// resets it at boot, and when the guest requests it.
	Reset()
}

// The regions of a PCI device.
const (
	BAR0 = iota
	BAR1
	BAR2
	BAR3
	BAR4
	BAR5
	ROM
	Config // the configuration space: 256 or 4096 bytes
	VGA

	regions
)

// A Region is a region of a device.
type Region struct {
	Size     uint64
	ReadOnly bool
}

// An IRQ is a kind of interrupt.
type IRQ int

// The kinds of interrupts. INTx is not supported.
const (
	INTx    IRQ = iota
	MSI         // at most 32
	MSIX        // at most 2048
	Failure     // one: an unrecoverable error. QEMU stops the machine.
	Request     // one: the device requests to be unplugged

	kinds
)

// MaxIRQs is the maximum number of interrupts of one kind.
const MaxIRQs = 2048
