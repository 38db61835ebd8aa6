package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Server serves one device to one machine at a time. All fields must be set.
// A server may serve many connections, one after the other.
type Server struct {
	Device Device

	// Run runs a step of the device: one message of the client. It must call f
	// before it returns.
	Run func(f func())

	// Report receives an *Error for each message that was refused, for each
	// failure of the device, and (in Serve) for each connection that ended with
	// an error. It is called outside of Run.
	Report func(error)

	current atomic.Pointer[net.UnixConn]
}

// Listen returns a listener for Serve at a path. It replaces the socket of a
// server that has exited. If a server still listens, or the file is not a
// socket, it returns EADDRINUSE.
func Listen(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Net: "unix", Name: path}
	l, err := net.ListenUnix("unix", addr)
	if !errors.Is(err, unix.EADDRINUSE) {
		return l, err
	}
	if file, statErr := os.Lstat(path); statErr != nil || file.Mode()&os.ModeSocket == 0 {
		return nil, errors.Join(err, statErr)
	}
	c, dialErr := net.DialUnix("unix", nil, addr)
	if !errors.Is(dialErr, unix.ECONNREFUSED) {
		if dialErr == nil {
			dialErr = c.Close()
		}
		return nil, errors.Join(err, dialErr)
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.ListenUnix("unix", addr)
}

// Serve serves the machines that connect to a listener, one after the other,
// until the context ends. Then it closes the listener and the open connection.
// It returns nil or the error of Accept.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer func() {
		if stop() {
			l.Close()
		}
	}()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("vfio-user: %w", err)
		}
		if err := s.ServeConn(ctx, c); err != nil {
			s.Report(err)
		}
	}
}

// ServeConn serves one machine, and closes the connection. It returns nil if
// the machine disconnects between two messages, the context ends, or Unplug is
// called.
func (s *Server) ServeConn(ctx context.Context, c *net.UnixConn) error {
	if !s.current.CompareAndSwap(nil, c) {
		return errors.Join(refused(unix.EBUSY, "the device is connected to another machine"), c.Close())
	}
	defer s.current.Store(nil)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	x := &conn{server: s, stream: stream{conn: c}}
	err := x.serve()
	if errors.Is(err, net.ErrClosed) { // by the context, or by Unplug
		err = nil
	}
	err = errors.Join(err, x.disconnect())
	stop()
	if e := c.Close(); !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// Unplug closes the connection to the machine that has the device. That machine
// cannot use the slot any more. Serve accepts the next connection. Unplug may
// be called concurrently.
func (s *Server) Unplug() error {
	c := s.current.Load()
	if c == nil {
		return nil
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// step calls f in Run. A panic of the device is returned as an error, as is one
// of another step, if Run does not recover it.
func (s *Server) step(f func()) (err error) {
	defer caught(&err)
	s.Run(func() {
		defer caught(&err)
		f()
	})
	return err
}

// caught, when deferred, converts a panic to an error.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = &Error{Kind: ErrPanic, Errno: unix.EIO, Detail: fmt.Sprintf("%v\n%s", p, debug.Stack())}
	}
}
