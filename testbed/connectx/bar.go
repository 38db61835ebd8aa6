package connectx

import (
	"encoding/binary"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// BAR 0: the initialization segment, the MSI-X table, the UAR pages, and device memory.
const (
	uarShift    = 12      // of a UAR page
	uarPages    = 1 << 13 // minimum, including those before the first
	minFirstUAR = 16      // the pages before it have other uses
	maxFirstUAR = 1 << 18 // more than 16 bits, and a BAR of 2 GiB

	msixTable   = 0x2000
	msixPending = 0x3000
	vectors     = 64

	initSegEnd = 0x1018

	// Doorbells of event queues in a UAR page.
	doorbellArm   = 0x40
	doorbellNoArm = 0x48
)

// Registers written by a driver.
var (
	regCmdqHigh     = prm.InitSegCmdqPhyAddrHigh.Offset / 8
	regCmdqLow      = prm.InitSegCmdqPhyAddrLow.Offset / 8
	regCmdqDoorbell = prm.InitSegCommandDoorbellVector.Offset / 8
)

// ReadBAR fills p with the registers at an offset of BAR 0.
func (d *Device) ReadBAR(offset uint64, p []byte) {
	clear(p)
	if d.gone {
		for i := range p {
			p[i] = 0xff
		}
		return
	}
	if offset >= initSegEnd {
		if !d.hca.LoadDeviceMemory(offset, p) {
			d.operate(offset, p, false)
		}
		return
	}
	segment := make([]byte, initSegEnd)
	d.fillInitSegment(segment)
	copy(p, segment[offset:])
}

// fillInitSegment stores the current values of the registers in b.
func (d *Device) fillInitSegment(b []byte) {
	fw := d.config.Firmware
	prm.InitSegFWRevMajor.Set(b, uint64(fw[0]))
	prm.InitSegFWRevMinor.Set(b, uint64(fw[1]))
	prm.InitSegFWRevSubminor.Set(b, uint64(fw[2]))
	prm.InitSegCmdInterfaceRev.Set(b, cmdInterfaceRev)
	prm.InitSegCmdqPhyAddrHigh.Set(b, d.cmdq.addr>>32)
	prm.InitSegCmdqPhyAddrLow.Set(b, d.cmdq.addr>>12)
	prm.InitSegNICInterface.Set(b, uint64(d.cmdq.state))
	prm.InitSegLogCmdqSize.Set(b, logCmdqSize)
	prm.InitSegLogCmdqStride.Set(b, logCmdqStride)
	prm.InitSegFWResetSupported.Set(b, 1)
	d.health.fill(prm.InitSegHealth.Bytes(b), fw)
	prm.InitSegInternalTimer.Set(b, d.ticks())
	prm.InitSegHealthCounter.Set(b, d.health.counter(d.start))
}

// WriteBAR stores p at an offset of BAR 0, as one store of the driver.
func (d *Device) WriteBAR(offset uint64, p []byte) {
	switch {
	case d.gone:
	case offset < initSegEnd:
		for len(p) >= 4 {
			d.writeRegister(int(offset), binary.BigEndian.Uint32(p))
			offset, p = offset+4, p[4:]
		}
	case d.hca.StoreDeviceMemory(offset, p), d.operate(offset, p, true):
	case offset>>uarShift >= minFirstUAR:
		page, in := d.uars.at(offset)
		d.writeUAR(page, in, p)
	}
}

func (d *Device) writeRegister(offset int, v uint32) {
	switch offset {
	case regCmdqHigh:
		d.cmdq.high = v
	case regCmdqLow:
		d.setCommandQueue(v)
	case regCmdqDoorbell:
		d.ringCommands(v)
	}
}

// writeUAR processes a store to a UAR page. When the driver resets the device, programs store to
// their pages until the driver has unmapped them. The device ignores these stores.
func (d *Device) writeUAR(page, offset uint32, p []byte) {
	if !d.uars.has(page) {
		if d.lost.run > 0 && d.lost.has(page) {
			return
		}
		d.report("a store of %d bytes to %#x of UAR page %#x, which is not allocated", len(p), offset, page)
		return
	}
	switch offset {
	case doorbellArm, doorbellNoArm:
		if len(p) == prm.EQDoorbell.Size {
			d.eqDoorbell(page, p, offset == doorbellArm)
			return
		}
	}
	d.hca.Store(page, offset, p)
}

// health is the state of the firmware.
type health struct {
	syndrome uint8
	severity uint8
}

// fill stores the health buffer in b.
func (h *health) fill(b []byte, fw [3]uint16) {
	prm.HealthFWVersion.Set(b, uint64(fw[0])<<24|uint64(fw[1]&0xff)<<16|uint64(fw[2]))
	prm.HealthHWID.Set(b, 0x20d)
	prm.HealthSyndrome.Set(b, uint64(h.syndrome))
	if h.syndrome != 0 {
		prm.HealthRFR.Set(b, 1) // without it, the driver only logs the error
		prm.HealthValid.Set(b, 1)
		prm.HealthSeverity.Set(b, uint64(h.severity))
	}
}

// counter returns the health counter. It depends on the clock alone, because an
// idle device runs no code.
func (h *health) counter(start time.Time) uint64 {
	return uint64(time.Since(start)/(10*time.Millisecond)) & 0xffffff
}
