// Package ioctl encodes and issues the commands of RDMA_VERBS_IOCTL
// (rdma/rdma_user_ioctl_cmds.h).
//
// # Memory
//
// A [Cmd] holds the header, the attributes and an arena for their data in one heap object. The
// garbage collector does not move heap objects, so the kernel reads and writes stable memory; a
// goroutine's stack may move. Larger buffers are passed by reference and kept alive by the Cmd.
//
// # Descriptor
//
// The uverbs node cannot be polled, so it is a plain descriptor here. The Device counts commands
// in progress. A command issued after Close returns [os.ErrClosed] and never uses a descriptor
// number that another file has reused.
//
// # Tracing
//
// With GOVERBS_TRACE=1 in the environment, each command is printed to standard error when it
// returns: node, object and method, attributes, errno and time.
package ioctl

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/leak"
	"golang.org/x/sys/unix"
)

// A Device is an open uverbs node. Its methods may be called from any number of goroutines.
type Device struct {
	name   string // base name of the node, for the trace
	fd     int
	driver uint32

	// users counts commands in progress in its upper bits. Bit 0 is set once the Device is
	// closing.
	users  atomic.Int64
	closed chan struct{}
	once   sync.Once
	err    error

	noWrite atomic.Bool // write(2) was refused once: see Write

	watched bool   // commands are traced, or handled by kernel
	kernel  Kernel // a fake kernel; nil: use the descriptor
	ticket  *leak.Ticket
}

const (
	closing = 1
	user    = 2
)

// New takes ownership of fd, an open uverbs node. driver is the driver's RDMA_DRIVER_* number.
// The kernel rejects commands with another number.
func New(fd int, name string, driver uint32) *Device {
	return &Device{name: name, fd: fd, driver: driver, closed: make(chan struct{}), watched: tracing,
		ticket: leak.Track("descriptor of", name)}
}

// Driver returns the RDMA_DRIVER_* number.
func (d *Device) Driver() uint32 { return d.driver }

// Name returns the node's base name, such as uverbs0.
func (d *Device) Name() string { return d.name }

func (d *Device) acquire() error {
	if d.users.Add(user)&closing != 0 {
		d.release()
		return os.ErrClosed
	}
	return nil
}

func (d *Device) release() {
	if d.users.Add(-user) == closing {
		d.close()
	}
}

func (d *Device) close() {
	d.once.Do(func() {
		d.err = unix.Close(d.fd)
		if k, ok := d.kernel.(Closer); ok {
			k.Closed()
		}
		d.ticket.Done()
		close(d.closed)
	})
}

// Close rejects further commands, waits for those in progress and closes the descriptor. The
// kernel then destroys the context's remaining objects, unless a mapping of the node still
// exists.
func (d *Device) Close() error {
	if d.users.Or(closing)&^closing == 0 {
		d.close()
	}
	<-d.closed
	return d.err
}

// Dup returns another descriptor of the node, which the caller owns.
func (d *Device) Dup() (int, error) {
	if err := d.acquire(); err != nil {
		return -1, err
	}
	defer d.release()
	return unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
}

// Mmap maps n bytes of the node at offset as shared memory: see [Unmap].
func (d *Device) Mmap(offset int64, n, prot int) ([]byte, error) {
	if err := d.acquire(); err != nil {
		return nil, err
	}
	defer d.release()
	mem, err := Pages(d.fd, offset, n, prot, unix.MAP_SHARED)
	if k, ok := d.kernel.(Maps); ok && err == nil {
		k.Mapped(offset, mem)
	}
	return mem, err
}

// Write issues a legacy command, including its header, with write(2). The kernel rejects that if
// the process's credentials have changed since the node was opened. From then on Write returns
// false, and the caller must use the ioctl. Go's scheduler is notified of the call unless it is
// brief: while a brief call is in progress, a garbage collection that wants to stop the world
// waits for it.
func (d *Device) Write(frame []byte, brief bool) (ok bool, err error) {
	if d.noWrite.Load() {
		return false, nil
	}
	if err := d.acquire(); err != nil {
		return true, err
	}
	defer d.release()
	for err = unix.EINTR; err == unix.EINTR; { // a signal interrupts it before the kernel has done anything
		switch {
		case d.watched:
			err = d.watchWrite(frame)
		case brief:
			err = d.writeNow(frame)
		default:
			_, err = unix.Write(d.fd, frame)
		}
	}
	if errors.Is(err, unix.EACCES) {
		d.noWrite.Store(true)
		return false, nil
	}
	return true, err
}
