package connectx

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/connectx/pci"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

var _ vfiouser.Device = (*Device)(nil)

const (
	vendorMellanox  = 0x15b3
	classInfiniBand = 0x020700
	classEthernet   = 0x020000
)

// newSpace returns the function's configuration space.
func newSpace(c *Config) (*pci.Space, error) {
	id := pci.ID{Vendor: vendorMellanox, Device: c.PCIDevice, SubsystemVendor: vendorMellanox, Class: classInfiniBand}
	if c.LinkLayer == Ethernet {
		id.Class = classEthernet
	}
	s := pci.New(id)
	if err := s.AddBAR(0, pci.BAR{Size: c.barSize(), Wide: true, Prefetchable: true}); err != nil {
		return nil, err
	}
	if err := s.AddExpress(pci.Link{Speed: pci.Speed8GT, Width: 16}); err != nil {
		return nil, err
	}
	return s, s.AddMSIX(pci.MSIX{Vectors: vectors, TableOffset: msixTable, PendingOffset: msixPending})
}

// Region implements vfiouser.Device.
func (d *Device) Region(index int) vfiouser.Region {
	switch index {
	case vfiouser.BAR0:
		return vfiouser.Region{Size: d.config.barSize()}
	case vfiouser.Config:
		return vfiouser.Region{Size: pci.Size}
	}
	return vfiouser.Region{}
}

// IRQs implements vfiouser.Device.
func (d *Device) IRQs(kind vfiouser.IRQ) int {
	if kind == vfiouser.MSIX {
		return vectors
	}
	return 0
}

// guest implements Machine for a virtual machine.
type guest struct{ *vfiouser.Host }

// Interrupt implements Machine.
func (g guest) Interrupt(vector int) error { return g.Host.Interrupt(vfiouser.MSIX, vector) }

// Connect implements vfiouser.Device.
func (d *Device) Connect(h *vfiouser.Host) { d.Plug(guest{h}) }

// Disconnect implements vfiouser.Device.
func (d *Device) Disconnect() { d.Plug(nil) }

// Read implements vfiouser.Device.
func (d *Device) Read(region int, offset uint64, p []byte) error {
	switch region {
	case vfiouser.BAR0:
		d.ReadBAR(offset, p)
	case vfiouser.Config:
		d.space.Read(offset, p)
	default:
		return fmt.Errorf("connectx: region %d: %w", region, unix.EINVAL)
	}
	return nil
}

// Write implements vfiouser.Device.
func (d *Device) Write(region int, offset uint64, p []byte) error {
	switch region {
	case vfiouser.BAR0:
		d.WriteBAR(offset, p)
	case vfiouser.Config:
		d.space.Write(offset, p)
	default:
		return fmt.Errorf("connectx: region %d: %w", region, unix.EINVAL)
	}
	return nil
}
