package ioctl

import (
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Kernel stands in for the kernel in tests: see [NewFake].
type Kernel interface {
	// Ioctl answers a command with nil or an errno, and fills in its outputs.
	Ioctl(Call) error
	// Write answers a frame that was written to the node.
	Write(frame []byte) error
}

// NewFake is [New] for a node whose commands go to k. It takes ownership of
// fd, which serves Mmap alone: a memfd, for instance.
func NewFake(fd int, name string, driver uint32, k Kernel) *Device {
	d := New(fd, name, driver)
	d.kernel, d.watched = k, true
	return d
}

// A Call is a command as the kernel sees it: what attributes point to is named
// by address.
type Call struct{ c *Cmd }

// Header is the command's header.
func (c Call) Header() uapi.IbUverbsIoctlHdr { return c.c.hdr }

// Attrs are the attributes sent. The kernel writes to them.
func (c Call) Attrs() []uapi.IbUverbsAttr { return c.c.attrs[:c.c.hdr.NumAttrs] }

// Memory is what lies at an address, or nil where the command has no n bytes
// there: the kernel would answer EFAULT, or read what is not its own.
func (c Call) Memory(addr uint64, n int) []byte {
	for _, b := range append([][]byte{wordBytes(c.c.arena[:c.c.used])}, c.c.refs...) {
		off := addr - address(b)
		if off <= uint64(len(b)) && uint64(n) <= uint64(len(b))-off {
			return b[off:][:n:n]
		}
	}
	return nil
}

// String names the method and renders its inputs as the trace does.
func (c Call) String() string { return c.c.describe() }
