package rdmacm

import (
	"os"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A Kernel replaces the kernel in tests: see [NewFake].
type Kernel interface {
	// Command returns the result of a command, 0 or an errno, and writes its reply. It
	// returns EAGAIN for GET_EVENT if there is no event.
	Command(Call) unix.Errno
	// Closed is called when the file is closed and no command is in progress.
	Closed()
}

// NewFake returns a File that sends its commands to k. It takes ownership of fd. Make
// fd readable whenever NextEvent must ask again, for example an eventfd that is written
// to with every event.
func NewFake(fd int, k Kernel) (*File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return newFile(os.NewFile(uintptr(fd), "fake rdma_cm"), k)
}

// A Call is a command as the kernel receives it.
type Call struct{ c *command }

// Frame returns what was written: header and payload, or less.
func (c Call) Frame() []byte { return wordBytes(c.c.frame[:])[:headerSize+c.c.n] }

// Header returns the command's header.
func (c Call) Header() uapi.RdmaUcmCmdHdr { return *header(c.c) }

// Ended reports whether a [Stop] has ended the command: the kernel finds an invalid header when it reads it again.
func (c Call) Ended() bool { return atomic.LoadUint64(&c.c.frame[0]) == invalid }

// reply returns the memory of the reply.
func (c Call) reply() []byte {
	if c.c.more != nil {
		return c.c.more[:c.c.out]
	}
	return wordBytes(c.c.reply[:])[:c.c.out]
}

// Memory returns the n bytes at an address. It returns nil if they are outside of the
// command's memory: the kernel would return EFAULT, or read other memory.
func (c Call) Memory(addr uint64, n int) []byte {
	b := c.reply()
	off := addr - address(b)
	if off <= uint64(len(b)) && uint64(n) <= uint64(len(b))-off {
		return b[off:][:n:n]
	}
	return nil
}

// String formats the command as the trace does.
func (c Call) String() string { return c.c.describe() }
