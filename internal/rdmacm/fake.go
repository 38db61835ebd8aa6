package rdmacm

import (
	"os"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A Kernel stands in for the kernel in tests: see [NewFake].
type Kernel interface {
	// Command answers a command with 0 or an errno, and fills in its reply.
	// GET_EVENT without an event is EAGAIN.
	Command(Call) unix.Errno
	// Closed tells that the file is closed, once no command is in flight.
	Closed()
}

// NewFake makes a File whose commands go to k. It takes ownership of fd, which
// becomes readable when NextEvent is to ask again: an eventfd that is written to
// with every event, for instance.
func NewFake(fd int, k Kernel) (*File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return newFile(os.NewFile(uintptr(fd), "fake rdma_cm"), k)
}

// A Call is a command as the kernel sees it.
type Call struct{ c *command }

// Frame is what was written: header and payload, or less.
func (c Call) Frame() []byte { return wordBytes(c.c.frame[:])[:headerSize+c.c.n] }

// Header is the command's header.
func (c Call) Header() uapi.RdmaUcmCmdHdr { return *header(c.c) }

// Memory is what lies at an address, or nil where the command has no n bytes
// there: the kernel would answer EFAULT, or read what is not its own.
func (c Call) Memory(addr uint64, n int) []byte {
	b := wordBytes(c.c.reply[:])
	if c.c.more != nil {
		b = c.c.more
	}
	off := addr - address(b)
	if b = b[:c.c.out]; off <= uint64(len(b)) && uint64(n) <= uint64(len(b))-off {
		return b[off:][:n:n]
	}
	return nil
}

// String renders the command as the trace does.
func (c Call) String() string { return c.c.describe() }
