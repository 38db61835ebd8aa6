package rdmacm

import (
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

const (
	headerSize = 8
	// frameWords is room for the header and the longest command, WRITE_CM_EVENT.
	frameWords = (headerSize + 320) / 8
	// replyWords is room for the longest reply of fixed size, and for tables of
	// six records: what is longer has memory of its own.
	replyWords = 136
)

// A command is one command with the room for its reply. It comes from the pool.
type command struct {
	frame [frameWords]uint64 // header and payload, as the kernel reads them
	reply [replyWords]uint64 // what the kernel writes to, or reads an option from
	more  []byte             // stands for reply where that is too small
	n     int                // bytes of the payload
	out   int                // bytes of the reply

	file  *File
	errno unix.Errno

	// Made once, so that a command costs no closure.
	control func(uintptr)
	poll    func(uintptr) (done bool)
}

var pool = sync.Pool{New: func() any {
	c := new(command)
	c.control = func(fd uintptr) { c.errno = c.run(fd) }
	c.poll = func(fd uintptr) bool {
		c.errno = c.run(fd)
		return c.errno != unix.EAGAIN
	}
	return c
}}

func (c *command) put() {
	c.file, c.more = nil, nil
	pool.Put(c)
}

// start takes a command from the pool, with a payload of n zero bytes.
func start(number uint32, n int) *command {
	c := pool.Get().(*command)
	clear(c.frame[:])
	c.n, c.out = n, 0
	*header(c) = uapi.RdmaUcmCmdHdr{Cmd: number, In: uint16(n)}
	return c
}

// room makes room for a reply of n bytes and returns it with its address.
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

// attach puts b where the kernel can read it, and returns the address.
func (c *command) attach(b []byte) uint64 {
	room, at := c.room(len(b))
	copy(room, b)
	header(c).Out = 0
	return at
}

// do runs c.
func (f *File) do(c *command) error {
	c.file = f
	if err := f.conn.Control(c.control); err != nil {
		return f.gone(err)
	}
	return f.answer(c)
}

// answer is the result of a command that was run.
func (f *File) answer(c *command) error {
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
	if errno != unix.EAGAIN { // NextEvent goes on waiting
		trace(c, errno, time.Since(start))
	}
	return errno
}

func (c *command) issue(fd uintptr) unix.Errno {
	if k := c.file.kernel; k != nil {
		return k.Command(Call{c})
	}
	return c.write(fd, headerSize+c.n)
}

// whyRefused tells a refusal of the file from one of the command's own, such as
// a port that needs a privilege. The kernel looks at the credentials first, then
// at the length.
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
