package fakebnxt

import (
	"encoding/binary"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/uapi"
)

// The queue of doorbells of the device, whose register has the room in its upper half, and what the driver says of it.
const (
	doorbellDepth     = 0x2c00
	doorbellThreshold = 0x100
	doorbellAlarm     = 0x200
	doorbellRegister  = 0x1a8
)

// allocPage is bnxt_re's method ALLOC_PAGE.
func (k *kernel) allocPage(c ioctl.Call) error {
	i, ok := map[uint64]int{uapi.BNXT_RE_ALLOC_DBR_PAGE: 0,
		uapi.BNXT_RE_ALLOC_DBR_BAR_PAGE: 1}[call.Num(c, uapi.BNXT_RE_ALLOC_PAGE_TYPE)]
	if !ok || !k.dev.fabric.cfg.Pacing {
		return unix.EOPNOTSUPP
	}
	var err error
	if k.pacing[i].Bytes == nil {
		if k.pacing[i], err = k.File.NewRing(uint64(unix.Getpagesize())); err != nil {
			return err
		}
	}
	if i == 0 {
		for j, v := range []uint32{1 << 16, doorbellThreshold, doorbellAlarm, doorbellDepth, 0xffff0000, 16,
			0x300_0000 + doorbellRegister} {
			binary.LittleEndian.PutUint32(k.pacing[0].Bytes[4*j:], v)
		}
	}
	k.setDoorbells(0)
	zero, length := uint32(0), uint32(unix.Getpagesize())
	call.Reply(c, uapi.BNXT_RE_ALLOC_PAGE_MMAP_OFFSET, &k.pacing[i].Key)
	call.Reply(c, uapi.BNXT_RE_ALLOC_PAGE_MMAP_LENGTH, &length)
	call.Reply(c, uapi.BNXT_RE_ALLOC_PAGE_DPI, &zero)
	return nil
}

// notified is bnxt_re's method NOTIFY_DRV.
func (k *kernel) notified(ioctl.Call) error {
	k.setDoorbells(0)
	return nil
}

// setDoorbells sets how many doorbells are in the device's queue, as the register says to a program.
func (k *kernel) setDoorbells(n uint32) {
	if b := k.pacing[1].Bytes; b != nil {
		atomic.StoreUint32(wordOf(b, doorbellRegister), (doorbellDepth-n)<<16)
	}
}

// Notified returns how often programs have notified the driver that the queue is almost full.
func (d *Device) Notified() (n int) {
	d.fabric.Loop.Run(func() {
		for _, k := range d.files {
			n += k.Count("PACING.NOTIFY")
		}
	})
	return n
}

// SetDoorbells sets how many doorbells are in the device's queue. A notification of the driver empties it.
func (d *Device) SetDoorbells(n uint32) {
	d.fabric.Loop.Run(func() {
		for _, k := range d.files {
			k.setDoorbells(n)
		}
	})
}
