// Package ioctl encodes and issues the commands of RDMA_VERBS_IOCTL
// (rdma/rdma_user_ioctl_cmds.h).
//
// # Memory
//
// A [Cmd] holds header, attributes and an arena for the data that they point
// to in one heap object: the garbage collector does not move it, so the kernel
// reads and writes memory that stays where it is, while a goroutine's stack
// may not. Larger buffers are named by reference and kept alive by the Cmd.
//
// # Descriptor
//
// The uverbs node cannot be polled, so it is a plain descriptor here, counted
// while commands are in flight: a command that is issued after Close gets
// [os.ErrClosed], never a descriptor that another file has taken over.
//
// # Tracing
//
// With GOVERBS_TRACE=1 in the environment each command is printed to standard
// error when it returns: node, object and method, attributes, errno, time.
package ioctl

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/leak"
	"golang.org/x/sys/unix"
)

// A Device is an open uverbs node. Its methods may be called from any number
// of goroutines.
type Device struct {
	name   string // base name of the node, for the trace
	fd     int
	driver uint32

	// users counts commands in flight in its upper bits; bit 0 says closing.
	users  atomic.Int64
	closed chan struct{}
	once   sync.Once
	err    error

	noWrite atomic.Bool // write(2) was refused once: see Write

	watched bool   // commands are traced, or answered by kernel
	kernel  Kernel // nil: the descriptor
	ticket  *leak.Ticket
}

const (
	closing = 1
	user    = 2
)

// New takes ownership of fd, an open uverbs node of the driver with that
// RDMA_DRIVER_* number: the kernel refuses commands that name another one.
func New(fd int, name string, driver uint32) *Device {
	return &Device{name: name, fd: fd, driver: driver, closed: make(chan struct{}), watched: tracing,
		ticket: leak.Track("descriptor of", name)}
}

// Driver returns the RDMA_DRIVER_* number.
func (d *Device) Driver() uint32 { return d.driver }

// Name returns the node's base name: uverbs0.
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
		d.ticket.Done()
		close(d.closed)
	})
}

// Close refuses further commands, waits for those in flight and closes the
// descriptor. The kernel then destroys what the context still holds, unless a
// mapping of it lives.
func (d *Device) Close() error {
	if d.users.Or(closing)&^closing == 0 {
		d.close()
	}
	<-d.closed
	return d.err
}

// Dup returns another descriptor of the node, which is the caller's.
func (d *Device) Dup() (int, error) {
	if err := d.acquire(); err != nil {
		return -1, err
	}
	defer d.release()
	return unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
}

// Mmap maps n bytes at offset of the node, shared: see [Unmap].
func (d *Device) Mmap(offset int64, n, prot int) ([]byte, error) {
	if err := d.acquire(); err != nil {
		return nil, err
	}
	defer d.release()
	return Pages(d.fd, offset, n, prot, unix.MAP_SHARED)
}

// Write issues a legacy command by write(2), header and all. The kernel
// refuses that once the process's credentials are not those that opened the
// node; Write then answers false from that time on, and the caller takes the
// ioctl. Go's scheduler is told of the call unless it is brief: while such a call
// lasts, a collection that wants to stop the world waits for it.
func (d *Device) Write(frame []byte, brief bool) (ok bool, err error) {
	if d.noWrite.Load() {
		return false, nil
	}
	if err := d.acquire(); err != nil {
		return true, err
	}
	defer d.release()
	switch {
	case d.watched:
		err = d.watchWrite(frame)
	case brief:
		err = d.writeNow(frame)
	default:
		for err = unix.EINTR; err == unix.EINTR; { // as in writeNow
			_, err = unix.Write(d.fd, frame)
		}
	}
	if errors.Is(err, unix.EACCES) {
		d.noWrite.Store(true)
		return false, nil
	}
	return true, err
}
