package vfiouser_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/pci"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// Registers and identity of the toy.
const (
	toyAddress = 0x00 // 64 bits: the address of the counter in the guest's memory
	toyRing    = 0x08 // a store increments and writes the counter, and raises this vector
	toyCount   = 0x0c // the counter
	toyScratch = 0x10 // 16 bytes of memory
	toyFail    = 0x20 // an access returns an error
	toyPanic   = 0x28 // an access panics

	toyTable   = 0x2000
	toyPending = 0x3000
	toyVectors = 4
	toySize    = 32 << 20

	toyVendor = 0x15b3
	toyClass  = 0xff0000 // no driver of the guest matches it
)

// A toy is a device for tests: it counts, writes the count to the guest's
// memory and raises an interrupt.
type toy struct {
	space   *pci.Space
	host    *vfiouser.Host
	addr    uint64
	count   uint32
	scratch [16]byte
	resets  int
	plugged int // calls of Connect less Disconnect
}

func newToy(t testing.TB, device uint16) *toy {
	t.Helper()
	d := &toy{space: pci.New(pci.ID{Vendor: toyVendor, Device: device, Class: toyClass, Revision: 7})}
	if err := errors.Join(
		d.space.AddBAR(0, pci.BAR{Size: toySize, Wide: true, Prefetchable: true}),
		d.space.AddExpress(pci.Link{Speed: pci.Speed8GT, Width: 16}),
		d.space.AddMSIX(pci.MSIX{Vectors: toyVectors, TableOffset: toyTable, PendingOffset: toyPending}),
	); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *toy) Region(i int) vfiouser.Region {
	switch i {
	case vfiouser.BAR0:
		return vfiouser.Region{Size: toySize}
	case vfiouser.ROM:
		return vfiouser.Region{Size: 512, ReadOnly: true}
	case vfiouser.Config:
		return vfiouser.Region{Size: pci.Size}
	}
	return vfiouser.Region{}
}

func (d *toy) IRQs(kind vfiouser.IRQ) int {
	switch kind {
	case vfiouser.MSIX:
		return toyVectors
	case vfiouser.Failure, vfiouser.Request:
		return 1
	}
	return 0
}

func (d *toy) Connect(h *vfiouser.Host) { d.host = h; d.plugged++ }
func (d *toy) Disconnect()              { d.host = nil; d.Reset() }

func (d *toy) Reset() {
	d.space.Reset()
	d.addr, d.count, d.scratch = 0, 0, [16]byte{}
	d.resets++
}

var errToy = errors.New("a toy's error")

func (d *toy) Read(region int, offset uint64, p []byte) error {
	if region == vfiouser.Config {
		d.space.Read(offset, p)
		return nil
	}
	clear(p)
	switch {
	case offset == toyCount && len(p) == 4:
		binary.LittleEndian.PutUint32(p, d.count)
	case offset >= toyScratch && offset < toyScratch+16:
		copy(p, d.scratch[offset-toyScratch:])
	case offset == toyFail:
		return errToy
	case offset == toyPanic:
		panic("a toy's mistake")
	}
	return nil
}

func (d *toy) Write(region int, offset uint64, p []byte) error {
	if region == vfiouser.Config {
		d.space.Write(offset, p)
		return nil
	}
	switch {
	case offset == toyAddress && len(p) == 8:
		d.addr = binary.LittleEndian.Uint64(p)
	case offset == toyRing && len(p) == 4:
		return d.ring(binary.LittleEndian.Uint32(p))
	case offset >= toyScratch && offset < toyScratch+16:
		copy(d.scratch[offset-toyScratch:], p)
	case offset == toyFail:
		return errToy
	case offset == toyPanic:
		panic("a toy's mistake")
	}
	return nil
}

// ring increments the counter, writes it to the guest's memory, and raises an
// interrupt.
func (d *toy) ring(vector uint32) error {
	d.count++
	b, err := d.host.View(d.addr, 4)
	if err != nil {
		return fmt.Errorf("the counter's address: %w", err)
	}
	binary.LittleEndian.PutUint32(b, d.count)
	return d.host.Interrupt(vfiouser.MSIX, int(vector))
}
