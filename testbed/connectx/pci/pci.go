// Package pci implements the configuration space of a PCI Express device: the
// header with its base address registers, and a chain of capabilities. Each bit
// is either fixed or writable by the guest.
//
// Source: PCI Local Bus and PCI Express Base specifications. Names are those of
// Linux's pci_regs.h.
package pci

import (
	"encoding/binary"
	"fmt"
)

// Size is the size of a PCI Express configuration space in bytes.
const Size = 4096

// Offsets of the header.
const (
	offVendor     = 0x00
	offDevice     = 0x02
	offCommand    = 0x04
	offStatus     = 0x06
	offRevision   = 0x08
	offInterface  = 0x09
	offSubclass   = 0x0a
	offClass      = 0x0b
	offCacheLine  = 0x0c
	offBAR0       = 0x10
	offSubVendor  = 0x2c
	offSubsystem  = 0x2e
	offCapability = 0x34
	offInterrupt  = 0x3c // interrupt line

	bars          = 6
	headerEnd     = 0x40
	capabilityEnd = 0x100 // extended capabilities follow
)

// Bits of the command register for the device.
const (
	CommandIO      = 1 << 0
	CommandMemory  = 1 << 1
	CommandMaster  = 1 << 2 // the device may access memory
	commandParity  = 1 << 6
	commandSERR    = 1 << 8
	CommandNoINTx  = 1 << 10
	commandWritten = CommandMemory | CommandMaster | commandParity | commandSERR | CommandNoINTx

	statusCapabilities = 1 << 4
)

// An ID identifies a device.
type ID struct {
	Vendor, Device             uint16
	SubsystemVendor, Subsystem uint16
	Class                      uint32 // base class, subclass and interface: 0x020700 is an InfiniBand controller
	Revision                   uint8
}

// A Space is a configuration space. It has no lock.
type Space struct {
	fixed   [Size]byte // as after a reset
	mask    [Size]byte // bits that the guest may write
	now     [Size]byte
	link    int // offset of the field for the next capability's offset
	free    int // the first byte after the last capability
	claimed [bars]bool
}

// New returns the space of a device without BARs and capabilities.
func New(id ID) *Space {
	s := &Space{link: offCapability, free: headerEnd}
	s.put16(offVendor, id.Vendor, 0)
	s.put16(offDevice, id.Device, 0)
	s.put16(offCommand, 0, commandWritten)
	s.set(offRevision, id.Revision, 0)
	s.set(offInterface, uint8(id.Class), 0)
	s.set(offSubclass, uint8(id.Class>>8), 0)
	s.set(offClass, uint8(id.Class>>16), 0)
	s.set(offCacheLine, 0, 0xff)
	s.put16(offSubVendor, id.SubsystemVendor, 0)
	s.put16(offSubsystem, id.Subsystem, 0)
	s.set(offInterrupt, 0, 0xff)
	return s
}

// A BAR describes a memory region of a device. Size is a power of two of at
// least 16, below 2 GiB unless Wide.
type BAR struct {
	Size         uint64
	Wide         bool // 64-bit: uses the next BAR as well
	Prefetchable bool
}

// AddBAR adds a memory BAR.
func (s *Space) AddBAR(i int, b BAR) error {
	low := uint64(0)
	last := i
	if b.Wide {
		low, last = 1<<2, i+1
	}
	if b.Prefetchable {
		low |= 1 << 3
	}
	switch {
	case i < 0 || last >= bars || s.claimed[i] || s.claimed[last]:
		return fmt.Errorf("pci: BAR%d to BAR%d are not free", i, last)
	case b.Size < 16 || b.Size&(b.Size-1) != 0 || !b.Wide && b.Size > 1<<31:
		return fmt.Errorf("pci: BAR%d cannot have %#x bytes: want a power of two, at least 16, at most 2 GiB if 32-bit", i,
			b.Size)
	}
	s.claimed[i], s.claimed[last] = true, true
	mask := ^(b.Size - 1)
	s.put32(offBAR0+4*i, uint32(low), uint32(mask))
	if b.Wide {
		s.put32(offBAR0+4*last, 0, uint32(mask>>32))
	}
	return nil
}

// Capability appends a capability to the chain: its contents after the two
// bytes of the header, and a mask of the bits that the guest may write (nil:
// none). It returns the capability's offset.
func (s *Space) Capability(id uint8, contents, mask []byte) (int, error) {
	at := (s.free + 3) &^ 3
	if at+2+len(contents) > capabilityEnd {
		return 0, fmt.Errorf("pci: no room for %d bytes of capability %#x at %#x", 2+len(contents), id, at)
	}
	if mask != nil && len(mask) != len(contents) {
		return 0, fmt.Errorf("pci: capability %#x has %d bytes, its mask %d", id, len(contents), len(mask))
	}
	s.set(s.link, uint8(at), 0)
	s.set(at, id, 0)
	for i, b := range contents {
		m := uint8(0)
		if mask != nil {
			m = mask[i]
		}
		s.set(at+2+i, b, m)
	}
	s.link, s.free = at+1, at+2+len(contents)
	s.put16(offStatus, statusCapabilities, 0)
	return at, nil
}

// Read fills p with the bytes at an offset. Bytes beyond the end read as ones,
// as on a missing device.
func (s *Space) Read(offset uint64, p []byte) {
	n := 0
	if offset < Size {
		n = copy(p, s.now[offset:])
	}
	for i := range p[n:] {
		p[n+i] = 0xff
	}
}

// Write changes the writable bits at an offset.
func (s *Space) Write(offset uint64, p []byte) {
	for i, b := range p {
		if at := offset + uint64(i); at < Size && at >= offset {
			s.now[at] = s.now[at]&^s.mask[at] | b&s.mask[at]
		}
	}
}

// Reset undoes the guest's writes.
func (s *Space) Reset() { s.now = s.fixed }

// Command returns the command register.
func (s *Space) Command() uint16 { return binary.LittleEndian.Uint16(s.now[offCommand:]) }

// set sets a byte and its writable bits.
func (s *Space) set(at int, value, mask uint8) {
	s.fixed[at], s.now[at], s.mask[at] = value, value, mask
}

func (s *Space) put16(at int, value, mask uint16) {
	s.set(at, uint8(value), uint8(mask))
	s.set(at+1, uint8(value>>8), uint8(mask>>8))
}

func (s *Space) put32(at int, value, mask uint32) {
	s.put16(at, uint16(value), uint16(mask))
	s.put16(at+2, uint16(value>>16), uint16(mask>>16))
}
