package vfiouser

// A Device is a PCI device. The server calls its methods inside Server.Run, one
// at a time.
type Device interface {
	// Region describes a region: BAR0 to BAR5, ROM, Config or VGA. A region
	// that the device does not have is the zero Region. The answer must stay
	// the same.
	Region(index int) Region

	// IRQs is how many interrupts of a kind the device has, at most MaxIRQs.
	// The answer must stay the same.
	IRQs(kind IRQ) int

	// Connect tells that a machine has the device now. The host is good until
	// Disconnect; the machine gives its memory bit by bit, and interrupts when
	// the guest enables them.
	Connect(h *Host)

	// Disconnect tells that the machine has gone, in whatever way. Its memory
	// and interrupts are gone already.
	Disconnect()

	// Read fills p with what is at an offset of a region, as the guest's bytes
	// in the order of their addresses, and Write takes p to there. They are
	// called with ranges inside of the region, of any length and alignment that
	// the guest has used, and the machine reads much at once. An error fails
	// the message: with the errno in it if there is one, else with EIO. They
	// must not keep p.
	Read(region int, offset uint64, p []byte) error
	Write(region int, offset uint64, p []byte) error

	// Reset puts the device into the state in which it was connected. The
	// machine resets it at boot, and when the guest asks for it.
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

// A Region is one part of what a device shows to its guest.
type Region struct {
	Size     uint64
	ReadOnly bool
}

// An IRQ is a kind of interrupt.
type IRQ int

// The kinds of interrupts. INTx is not supported: a device has none.
const (
	INTx    IRQ = iota
	MSI         // up to 32
	MSIX        // up to 2048
	Failure     // one: an error that no driver can mend. QEMU stops the machine.
	Request     // one: the device asks to be unplugged

	kinds
)

// MaxIRQs is the highest number of interrupts of one kind.
const MaxIRQs = 2048
