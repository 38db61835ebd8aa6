package bnxt_re

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
)

// A doorbell is the register that all queues of a Context share.
type doorbell struct {
	at    *uint64
	mem   *provider.Mapping
	pacer *pacer // nil if the driver does not delay doorbells

	// With the kernel in memory.
	bells ioctl.Doorbells
	page  uint32
}

// The fields of the register.
const (
	indexMask = 1<<24 - 1
	epochAt   = 24
	toggleAt  = 25
	numberAt  = 32
	valid     = 1 << 58
	kindAt    = 60

	numberMask = 1<<20 - 1
)

// Kinds of doorbells.
const (
	ringSQ       = 0
	ringRQ       = 1
	ringSRQ      = 2
	armSRQ       = 3
	ringCQ       = 4
	armCQ        = 6
	armSolicited = 5 // for solicited completions only
	ackCutOff    = 9 // of a CQ's old ring
)

// ring stores to the register.
//
//go:nosplit
func (d *doorbell) ring(kind uint64, number, index, epoch, toggle uint32) {
	v := uint64(index|epoch<<epochAt|toggle<<toggleAt) | uint64(number&numberMask)<<numberAt | valid | kind<<kindAt
	if d.pacer != nil {
		d.pacer.wait()
	}
	mmio.WCStart()
	mmio.Store64(d.at, v)
	mmio.FlushWrites()
	if d.bells != nil {
		d.simulate(v)
	}
}

// simulate tells the device in memory what has been stored.
//
//go:noinline
func (d *doorbell) simulate(v uint64) {
	d.bells.Doorbell(d.page, 0, binary.LittleEndian.AppendUint64(nil, v))
}

// mapDoorbell maps the register. The kernel returns its offset with a PD, but it remains until the context is closed.
func (c *deviceContext) mapDoorbell() (err error) {
	const op = "map the doorbell page"
	pd, dbr, err := c.allocPD()
	if err != nil {
		return provider.KernelError(op, "", err)
	}
	page := unix.Getpagesize()
	var m *provider.Mapping
	if dbr == 0 { // the page shared with the kernel
		err = provider.BadABI(op, "a doorbell page at offset 0")
	} else if m, err = provider.Map(c.dev, int64(dbr), page); err != nil {
		err = provider.KernelError(op, "", err)
	} else {
		c.bell = doorbell{at: &wordsOf(m, 0, 1)[0], mem: m, bells: c.dev.Doorbells(), page: uint32(dbr / uint64(page))}
	}
	return provider.Join(err, c.destroy(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY,
		uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, pd))
}

// allocPD allocates a PD, and returns its handle and the offset of the register.
func (c *deviceContext) allocPD() (handle uint32, dbr uint64, err error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsAllocPdResp](cmd, uapi.IB_USER_VERBS_CMD_ALLOC_PD, &uapi.IbUverbsAllocPd{})
	out := cmd.UHW(nil, ioctl.SizeOf[uapi.BnxtRePdResp]())
	if err := c.dev.Do(cmd); err != nil {
		return 0, 0, err
	}
	var reply uapi.BnxtRePdResp
	copy(ioctl.BytesOf(&reply), out)
	return resp.PdHandle, reply.Dbr, nil
}
