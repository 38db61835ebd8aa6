package efa

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
)

// A register is a doorbell of a queue.
type register struct {
	at  *uint32
	mem *provider.Mapping

	// With the kernel in memory.
	bells  ioctl.Doorbells
	page   uint32
	offset uint32
	stored [4]byte
}

// mapRegister maps the page with a register.
func (c *deviceContext) mapRegister(op string, key uint64, offset uint32) (r register, err error) {
	page := unix.Getpagesize()
	if offset%4 != 0 || int(offset)+4 > page {
		return r, provider.BadABI(op, "a register at %#x of a page", offset)
	}
	m, err := provider.Map(c.dev, int64(key), page)
	if err != nil {
		return r, provider.KernelError(op, "", err)
	}
	return register{at: wordAt(m, int(offset)), mem: m, bells: c.bells, page: uint32(key / uint64(page)),
		offset: offset}, nil
}

// store writes to the register.
//
//go:nosplit
func (r *register) store(v uint32) {
	mmio.Store32(r.at, v)
	if r.bells != nil {
		r.simulate(v)
	}
}

// simulate tells the device in memory what has been stored.
//
//go:noinline
func (r *register) simulate(v uint32) {
	binary.LittleEndian.PutUint32(r.stored[:], v)
	r.bells.Doorbell(r.page, r.offset, r.stored[:])
}
