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

// A Server gives one device to one machine at a time. All fields must be set.
// A server may be used for many connections, one after the other.
type Server struct {
	Device Device

	// Run runs a step of the device: one message of the client. It must have
	// run f when it returns.
	Run func(f func())

	// Report is told of each message that was refused, of each failure of the
	// device, and (by Serve) of each connection that ended with an error. The
	// errors are *Error. It is called outside of Run.
	Report func(error)

	busy atomic.Bool
}

// Listen makes a socket for Serve at a path. The socket of a server that is no
// more is replaced; that of one that still listens, or another file, is not: the
// error is EADDRINUSE.
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
// until the context ends. It closes the listener, and the connection that there
// is then. The error is nil, or that of accepting.
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

// ServeConn serves one machine, and closes the connection. It returns nil when
// the machine has gone between two messages, or the context has ended.
func (s *Server) ServeConn(ctx context.Context, c *net.UnixConn) error {
	if !s.busy.CompareAndSwap(false, true) {
		return errors.Join(refused(unix.EBUSY, "the device is in another machine"), c.Close())
	}
	defer s.busy.Store(false)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	x := &conn{server: s, stream: stream{conn: c}}
	err := x.serve()
	if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		err = nil
	}
	err = errors.Join(err, x.disconnect())
	if stop() {
		err = errors.Join(err, c.Close())
	}
	return err
}

// step runs f in Run. A panic of the device, or of what it has made run, is an
// error.
func (s *Server) step(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Kind: ErrPanic, Errno: unix.EIO, Detail: fmt.Sprintf("%v\n%s", p, debug.Stack())}
		}
	}()
	s.Run(f)
	return nil
}
