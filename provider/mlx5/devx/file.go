package devx

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/uverbs"
)

// A file is a descriptor of the kernel from which messages are read.
type file struct {
	op   string
	name string // of the device
	dev  *ioctl.Device
	f    *os.File
	life driver.Extension

	turn chan struct{} // full while a goroutine reads
	buf  []byte
}

// openFile creates a descriptor. start encodes the command, whose attribute id receives the descriptor.
func openFile(ctx *uverbs.Context, kind, op string, id uint16, start func(*ioctl.Cmd)) (*file, error) {
	f := &file{op: "read from a " + kind, turn: make(chan struct{}, 1)}
	err := with(ctx, op, func(dev *ioctl.Device) (err error) {
		f.dev, f.name = dev, ctx.Name()
		f.life, err = driver.Extend(ctx, op, driver.ExtensionConfig{Kind: kind,
			Create:  func(driver.Extension) (uint32, error) { return f.open(id, start) },
			Destroy: func() error { return f.f.Close() }})
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *file) open(id uint16, start func(*ioctl.Cmd)) (uint32, error) {
	c := ioctl.Get()
	defer c.Put()
	start(c)
	if err := f.dev.Do(c); err != nil {
		return 0, err
	}
	fd := int(c.Made(id))
	if err := unix.SetNonblock(fd, true); err != nil {
		return 0, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	f.f = os.NewFile(uintptr(fd), f.op)
	return uint32(fd), nil
}

// next reads a message of at most n bytes and waits for it. One goroutine reads at a time, and others wait for their
// turn.
func (f *file) next(ctx context.Context, n int) ([]byte, error) {
	select {
	case f.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, f.ended(ctx)
	}
	defer func() { <-f.turn }()
	if ctx.Err() != nil {
		return nil, f.ended(ctx)
	}
	if len(f.buf) < n {
		f.buf = make([]byte, n)
	}
	if err := f.f.SetReadDeadline(time.Time{}); err != nil {
		if !errors.Is(err, os.ErrNoDeadline) {
			err = os.ErrClosed // package os does not translate the error of the runtime here
		}
		return nil, f.explain(err)
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = f.f.SetReadDeadline(time.Unix(1, 0))
		close(done)
	})
	n, err := f.f.Read(f.buf)
	if !stop() {
		<-done // else it could end the next read
	}
	switch {
	case err == nil:
		return slices.Clone(f.buf[:n]), nil
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return nil, f.ended(ctx)
	}
	return nil, f.explain(err)
}

// ended returns the error of a read that ctx has ended.
func (f *file) ended(ctx context.Context) error {
	return &uverbs.Error{Op: f.op, Object: f.name, Err: ctxerr.Of(ctx)}
}

func (f *file) explain(err error) error {
	e := &uverbs.Error{Op: f.op, Object: f.name}
	switch {
	case errors.Is(err, os.ErrClosed):
		e.Kind = uverbs.ErrClosed
	case errors.Is(err, unix.EIO), err == io.EOF:
		e.Kind, e.Errno, e.Detail = uverbs.ErrDeviceGone, unix.EIO, "the device has been removed"
	default:
		e.Err = err
		errors.As(err, &e.Errno)
	}
	return e
}

// with calls fn with the descriptor.
func (f *file) with(op string, fn func(fd int) error) error {
	return f.life.With(op, func() error {
		raw, err := f.f.SyscallConn()
		if err != nil {
			return err
		}
		var result error
		if err := raw.Control(func(fd uintptr) { result = fn(int(fd)) }); err != nil {
			return err
		}
		return result
	})
}
