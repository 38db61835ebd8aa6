package rdmacm

import (
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// write writes n bytes of the frame to the kernel.
func (c *command) write(fd uintptr, n int) unix.Errno {
	var got uintptr
	var errno unix.Errno
	if c.brief {
		// Notifying Go's scheduler of each event would also wake a thread: see package monitor.
		// The kernel looks at the file's queue and does not wait for commands in progress.
		got, _, errno = unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&c.frame)), uintptr(n))
	} else {
		got, _, errno = unix.Syscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&c.frame)), uintptr(n))
	}
	runtime.KeepAlive(c) // the frame has the address of the reply as a number
	if errno == 0 && int(got) != n {
		return unix.ENODATA
	}
	return errno
}

func header(c *command) *uapi.RdmaUcmCmdHdr {
	return (*uapi.RdmaUcmCmdHdr)(unsafe.Pointer(&c.frame))
}

// request returns a command with a zeroed payload of type T.
func request[T any](number uint32) (*command, *T) {
	c := start(number, sizeOf[T]())
	return c, (*T)(unsafe.Pointer(&c.frame[headerSize/8]))
}

// send issues a command without a reply.
func send[T any](f *File, number uint32, payload *T) error {
	c, req := request[T](number)
	defer c.put()
	*req = *payload
	return f.do(c)
}

// reply provides memory for a reply of type T, and returns it with its address.
func reply[T any](c *command) (*T, uint64) {
	b, at := c.room(sizeOf[T]())
	return (*T)(unsafe.Pointer(unsafe.SliceData(b))), at
}

// tableOf provides memory for a reply that consists of a T and n records of type R.
func tableOf[T, R any](c *command, n int) (*T, []R, uint64) {
	b, at := c.room(sizeOf[T]() + n*sizeOf[R]())
	head := (*T)(unsafe.Pointer(unsafe.SliceData(b)))
	return head, unsafe.Slice((*R)(unsafe.Pointer(&b[sizeOf[T]()])), n), at
}

func sizeOf[T any]() int {
	var v T
	return int(unsafe.Sizeof(v))
}

func wordBytes(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*8)
}

// address returns the address of b for the kernel. b must belong to a command.
func address(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// view copies a T from the start of a union.
func view[T any](b []byte) (v T) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), b)
	return v
}
