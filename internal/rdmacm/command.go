package rdmacm

import (
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/monitor"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

const (
	headerSize = 8
	// frameWords has room for the header and the longest command, WRITE_CM_EVENT.
	frameWords = (headerSize + 320) / 8
	// replyWords has room for the longest reply of fixed size and for tables of six
	// records. Longer replies are allocated.
	replyWords = 136
)

// A command is a command with room for its reply. It is from the pool.
type command struct {
	frame [frameWords]uint64 // header and payload, for the kernel to read
	reply [replyWords]uint64 // for the kernel to write, or to read an option from
	more  []byte             // used instead of reply if that is too small
	n     int                // size of the payload
	out   int                // size of the reply
	brief bool               // Go's scheduler is not notified: the kernel replies at once

	file  *File
	stop  *Stop // of CONNECT, or nil
	errno unix.Errno
	wait  monitor.Wait // of NextEvent

	// Created once, so that a command allocates no closure.
	control func(uintptr)
	poll    func(uintptr) (done bool)
}

var pool = sync.Pool{New: func() any {
	c := new(command)
	c.control = func(fd uintptr) { c.errno = c.run(fd) }
	c.poll = func(fd uintptr) bool {
		c.errno = c.run(fd)
		return c.wait.Done(c.errno)
	}
	return c
}}

func (c *command) put() {
	c.file, c.more, c.stop = nil, nil, nil
	pool.Put(c)
}

// start returns a command from the pool with a payload of n zero bytes.
func start(number uint32, n int) *command {
	c := pool.Get().(*command)
	clear(c.frame[:])
	c.n, c.out, c.brief, c.wait = n, 0, false, monitor.Wait{}
	*header(c) = uapi.RdmaUcmCmdHdr{Cmd: number, In: uint16(n)}
	return c
}

// room provides memory for a reply of n bytes, and returns it with its address.
func (c *command) room(n int) ([]byte, uint64) {
	b := wordBytes(c.reply[:])
	if n > len(b) {
		c.more = make([]byte, n)
		b = c.more
	}
	b = b[:n:n]
	clear(b)
	c.out = n
	header(c).Out = uint16(n)
	return b, address(b)
}

// attach copies b to memory that the kernel can read, and returns its address.
func (c *command) attach(b []byte) uint64 {
	room, at := c.room(len(b))
	copy(room, b)
	header(c).Out = 0
	return at
}

// do issues c.
func (f *File) do(c *command) error {
	c.file = f
	if err := f.conn.Control(c.control); err != nil {
		return f.gone(err)
	}
	return f.result(c)
}

// result returns the result of a command.
func (f *File) result(c *command) error {
	switch c.errno {
	case 0:
		return nil
	case unix.EACCES:
		return f.whyRefused()
	}
	return c.errno
}

// run issues the command on the descriptor.
func (c *command) run(fd uintptr) unix.Errno {
	if !tracing.Load() {
		return c.issue(fd)
	}
	start := time.Now()
	errno := c.issue(fd)
	if errno != unix.EAGAIN { // NextEvent keeps waiting
		trace(c, errno, time.Since(start))
	}
	return errno
}

func (c *command) issue(fd uintptr) unix.Errno {
	if c.stop == nil {
		return c.call(fd)
	}
	if !c.stop.enter(c) {
		return unix.ECANCELED
	}
	return c.stop.leave(c.call(fd))
}

func (c *command) call(fd uintptr) unix.Errno {
	if k := c.file.kernel; k != nil {
		return k.Command(Call{c})
	}
	return c.write(fd, headerSize+c.n)
}

// whyRefused returns the error for an EACCES: errCredentials if the kernel refuses all
// commands on the file, or EACCES if it refused this one, such as a port that needs a
// privilege. It issues a command that is too short: the kernel checks the credentials
// before the length.
func (f *File) whyRefused() error {
	c := start(0, 0)
	defer c.put()
	c.file, c.n = f, -headerSize/2
	errno := unix.Errno(0)
	if err := f.conn.Control(func(fd uintptr) { errno = c.issue(fd) }); err != nil {
		return f.gone(err)
	}
	if errno == unix.EACCES {
		return errCredentials
	}
	return unix.EACCES
}
