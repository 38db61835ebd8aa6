package ioctl

import (
	"io/fs"

	"github.com/goverbs/goverbs/internal/uapi"
)

// A Kernel replaces the kernel in tests: see [NewFake].
type Kernel interface {
	// Ioctl runs a command and fills in its outputs. It returns nil or an errno.
	Ioctl(Call) error
	// Write runs a command that was written to the node.
	Write(frame []byte) error
}

// Doorbells is implemented by a Kernel that is also the device. Memory does not notice that it is
// written to, so a provider calls Doorbell after it has written to a register.
type Doorbells interface {
	// Doorbell is called with what was written to a register page of the device, at an offset.
	Doorbell(page, offset uint32, b []byte)
}

// Posts is implemented by Doorbells that must know of posts which ring no doorbell. A provider calls
// it in the goroutine that posts.
type Posts interface {
	// Received is called after receives were posted to the queue whose doorbell record is at an
	// address.
	Received(record uint64)
	// Full is called when the send queue of a QP has no room for another request.
	Full(qpn uint32)
}

// Maps is implemented by a Kernel that must know where its pages are in this process.
type Maps interface {
	// Mapped is called with what [Device.Mmap] has mapped at an offset.
	Mapped(offset int64, mem []byte)
}

// A Closer is a Kernel that is notified when the Device is closed and no command is in progress.
type Closer interface{ Closed() }

// Doorbells returns the fake kernel if it wants to be notified, or nil.
func (d *Device) Doorbells() Doorbells {
	b, _ := d.kernel.(Doorbells)
	return b
}

// A Process is a Kernel with the limits of the process that issues the commands, which are then not
// those of the process that runs the test.
type Process interface {
	// Memlock returns the limit on locked memory, or 0 if there is none, and how much is pinned, in
	// bytes.
	Memlock() (limit, pinned uint64)
	// Files returns the file system with the process's cgroups.
	Files() fs.FS
}

// Process returns the fake kernel if it has limits, or nil. d may be nil.
func (d *Device) Process() Process {
	if d == nil {
		return nil
	}
	p, _ := d.kernel.(Process)
	return p
}

// NewFake is [New] for a node whose commands are run by k. It takes ownership of fd, which is
// used only by Mmap, and may be a memfd.
func NewFake(fd int, name string, driver uint32, k Kernel) *Device {
	d := New(fd, name, driver)
	d.kernel, d.watched = k, true
	return d
}

// A Call is a command as the kernel sees it: attributes refer to data by address.
type Call struct{ c *Cmd }

// Header returns the command's header.
func (c Call) Header() uapi.IbUverbsIoctlHdr { return c.c.hdr }

// Attrs returns the attributes of the command. The kernel writes to them.
func (c Call) Attrs() []uapi.IbUverbsAttr { return c.c.attrs[:c.c.hdr.NumAttrs] }

// Memory returns n bytes at an address, or nil if they are not all in the command's memory. In
// that case a real kernel would return EFAULT or read other memory of the process.
func (c Call) Memory(addr uint64, n int) []byte {
	for _, b := range append([][]byte{wordBytes(c.c.arena[:c.c.used])}, c.c.refs...) {
		off := addr - address(b)
		if off <= uint64(len(b)) && uint64(n) <= uint64(len(b))-off {
			return b[off:][:n:n]
		}
	}
	return nil
}

// String returns the method and its inputs as in the trace.
func (c Call) String() string { return c.c.describe() }
