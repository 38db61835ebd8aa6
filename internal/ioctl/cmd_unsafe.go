package ioctl

import (
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Do runs c. An errno comes back as it is.
func (d *Device) Do(c *Cmd) error {
	if c.err != nil {
		return c.err
	}
	if err := d.acquire(); err != nil {
		return err
	}
	defer d.release()
	c.hdr.DriverId = d.driver
	c.hdr.NumAttrs = uint16(c.n)
	c.hdr.Length = uint16(unsafe.Sizeof(c.hdr) + uintptr(c.n)*unsafe.Sizeof(c.attrs[0]))
	if d.watched {
		return d.watch(c)
	}
	return d.issue(c)
}

func (d *Device) issue(c *Cmd) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), uapi.RDMA_VERBS_IOCTL, uintptr(unsafe.Pointer(&c.hdr)))
	runtime.KeepAlive(c) // the attributes hold its arena's address as a number
	if errno != 0 {
		return errno
	}
	return nil
}

// writeNow spares a brief call what the scheduler does for calls that may block:
// it would wake a thread of its own after each wait, and take the goroutine's
// place on the CPU away where the kernel is slow.
func (d *Device) writeNow(frame []byte) error {
	for {
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(d.fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))), uintptr(len(frame)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR: // before the kernel has done anything
			continue
		}
		return errno
	}
}

// Pages is mmap(2) without the table of mappings that [unix.Mmap] keeps for
// [unix.Munmap]: undo it by [Unmap].
func Pages(fd int, offset int64, n, prot, flags int) ([]byte, error) {
	if n <= 0 {
		return nil, unix.EINVAL
	}
	p, err := unix.MmapPtr(fd, offset, nil, uintptr(n), prot, flags)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Unmap is munmap(2) of all that [Pages] or [Device.Mmap] has mapped.
func Unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

func wordBytes(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)
}

func dataBytes(a *uapi.IbUverbsAttr) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.Data)), 8)
}

// address returns b's address as the kernel wants it. The caller sees to it
// that b lies in the Cmd, or is kept by it.
func address(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// SizeOf is the size of a kernel struct.
func SizeOf[T any]() int { return sizeOf[T]() }

func sizeOf[T any]() int {
	var v T
	return int(unsafe.Sizeof(v))
}

func bytesOf[T any](v *T) []byte {
	if v == nil || unsafe.Sizeof(*v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func at[T any](b []byte) *T {
	return (*T)(unsafe.Pointer(unsafe.SliceData(b)))
}

// BytesOf returns the memory of a kernel struct, for a command's vendor part.
func BytesOf[T any](v *T) []byte { return bytesOf(v) }

// SliceOf views a table of kernel structs; a rest that is shorter than one is
// left out. b must be aligned as T is: one of [make] is.
func SliceOf[T any](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
}
