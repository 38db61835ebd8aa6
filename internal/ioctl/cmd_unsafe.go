package ioctl

import (
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Do runs c. It returns an errno of the kernel unchanged, except EINTR. A command that a signal
// interrupted has had no effect, so Do issues it again.
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
	for {
		var err error
		if d.watched {
			err = d.watch(c)
		} else {
			err = d.issue(c)
		}
		if err != unix.EINTR {
			return err
		}
	}
}

func (d *Device) issue(c *Cmd) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), uapi.RDMA_VERBS_IOCTL, uintptr(unsafe.Pointer(&c.hdr)))
	runtime.KeepAlive(c) // the attributes refer to the arena by number only
	return result(errno)
}

// writeNow writes without notifying Go's scheduler, as [unix.Write] does because a call may block.
// For a brief call that costs too much: the scheduler may wake another thread after each wait, and
// if the kernel is slow, the goroutine loses its place on the CPU. The commands that are written, a
// doorbell and arming, acquire no lock of the kernel that sleeps.
func (d *Device) writeNow(frame []byte) error {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(d.fd), uintptr(unsafe.Pointer(unsafe.SliceData(frame))),
		uintptr(len(frame)))
	return result(errno)
}

// Pages is mmap(2) without the table of mappings that [unix.Mmap] keeps for [unix.Munmap]. Use
// [Unmap] to undo it.
func Pages(fd int, offset int64, n, prot, flags int) ([]byte, error) {
	if n <= 0 {
		return nil, unix.EINVAL
	}
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, uintptr(n), uintptr(prot), uintptr(flags), uintptr(fd),
		uintptr(offset))
	if errno != 0 {
		return nil, errno
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n), nil // the memory is not Go's
}

// Unmap is munmap(2) for all that [Pages] or [Device.Mmap] mapped.
func Unmap(b []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	return result(errno)
}

func result(errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

func wordBytes(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)
}

func dataBytes(a *uapi.IbUverbsAttr) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.Data)), 8)
}

// address returns the address of b for the kernel. The caller ensures that b is in the Cmd or
// kept alive by it.
func address(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// SizeOf returns the size of a kernel struct.
func SizeOf[T any]() int {
	var v T
	return int(unsafe.Sizeof(v))
}

// BytesOf returns the memory of a kernel struct, for the driver's part of a command.
func BytesOf[T any](v *T) []byte {
	if v == nil || unsafe.Sizeof(*v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func at[T any](b []byte) *T {
	return (*T)(unsafe.Pointer(unsafe.SliceData(b)))
}

// SliceOf views b as a table of kernel structs, without an incomplete last one. b must be aligned
// as T is; the result of [make] is.
func SliceOf[T any](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/SizeOf[T]())
}
