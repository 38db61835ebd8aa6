package pci

import (
	"encoding/binary"
	"fmt"
)

// Capability IDs.
const (
	idExpress = 0x10
	idMSIX    = 0x11
)

// Link speeds, as in the link registers.
const (
	Speed2_5GT = 1 + iota
	Speed5GT
	Speed8GT
	Speed16GT
	Speed32GT
)

// A Link is a PCI Express link, as in the device's registers.
type Link struct {
	Speed uint8 // Speed2_5GT...
	Width uint8 // lanes
}

// expressSize is the size of a version 2 capability, without its header.
const expressSize = 0x3c - 2

// AddExpress adds a PCI Express endpoint capability, version 2, without
// function-level reset.
func (s *Space) AddExpress(l Link) error {
	if l.Speed < Speed2_5GT || l.Speed > Speed32GT || l.Width == 0 || l.Width > 32 {
		return fmt.Errorf("pci: invalid link: speed %d, %d lanes", l.Speed, l.Width)
	}
	link := uint32(l.Speed) | uint32(l.Width)<<4
	var c, m expressBytes
	c.put16(0x02, 2)                // version 2; endpoint
	c.put32(0x04, 2|1<<5|1<<15)     // 512-byte payloads, extended tags, role-based errors
	c.put16(0x08, 1<<4|1<<11|2<<12) // relaxed ordering, no snoop, read requests of 512 bytes
	m.put16(0x08, 0x7fff)           // all bits but function-level reset
	c.put32(0x0c, link|1<<22)       // ASPM optionality
	m.put16(0x10, 0x0003|1<<6)      // ASPM control, common clock
	c.put16(0x12, uint16(link))     // link status
	c.put32(0x24, 1<<4)             // completion timeouts can be disabled
	m.put16(0x28, 0x001f)           // completion timeout value, disable
	speeds := uint32(1)<<l.Speed - 1
	c.put32(0x2c, speeds<<1)       // supported link speeds
	c.put16(0x30, uint16(l.Speed)) // target link speed
	m.put16(0x30, 0x000f)
	_, err := s.Capability(idExpress, c[:], m[:])
	return err
}

// expressBytes is the capability without its header. Offsets include the
// header, as in the specification.
type expressBytes [expressSize]byte

func (c *expressBytes) put16(at int, v uint16) { binary.LittleEndian.PutUint16(c[at-2:], v) }
func (c *expressBytes) put32(at int, v uint32) { binary.LittleEndian.PutUint32(c[at-2:], v) }

// An MSIX describes a device's message-signalled interrupts.
type MSIX struct {
	Vectors       int // at most 2048
	TableBAR      int
	TableOffset   uint32 // 16 bytes per vector; a multiple of 8
	PendingBAR    int
	PendingOffset uint32 // a bit per vector; a multiple of 8
}

// AddMSIX adds an MSI-X capability.
func (s *Space) AddMSIX(x MSIX) error {
	if x.Vectors < 1 || x.Vectors > 2048 {
		return fmt.Errorf("pci: MSI-X with %d vectors", x.Vectors)
	}
	place := func(bar int, offset uint32) (uint32, error) {
		if bar < 0 || bar >= bars || !s.claimed[bar] || offset%8 != 0 {
			return 0, fmt.Errorf("pci: MSI-X cannot be at %#x of BAR%d", offset, bar)
		}
		return offset | uint32(bar), nil
	}
	table, err := place(x.TableBAR, x.TableOffset)
	if err != nil {
		return err
	}
	pending, err := place(x.PendingBAR, x.PendingOffset)
	if err != nil {
		return err
	}
	c := binary.LittleEndian.AppendUint16(nil, uint16(x.Vectors-1))
	c = binary.LittleEndian.AppendUint32(c, table)
	c = binary.LittleEndian.AppendUint32(c, pending)
	m := make([]byte, len(c))
	m[1] = 0xc0 // enable, mask all
	_, err = s.Capability(idMSIX, c, m)
	return err
}
