package provider

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// KernelError wraps the error of a system call. The caller in package uverbs
// decides whether EIO means that the device is gone.
func KernelError(op, object string, err error) error {
	e := &uverbs.Error{Op: op, Object: object}
	if !errors.As(err, &e.Errno) {
		e.Kind, e.Detail = uverbs.ErrClosed, err.Error()
	}
	return e
}

// BadABI returns the error for a reply of the kernel that cannot be used.
//
//go:noinline
func BadABI(op, format string, args ...any) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrABI,
		Detail: "the kernel's reply is none that this library knows: " + fmt.Sprintf(format, args...)}
}

// ErrCompletion reports a completion that the device cannot have written: it names no request. Poll drops it.
var ErrCompletion error = &uverbs.Error{Op: "poll CQ", Kind: uverbs.ErrABI,
	Detail: "the device completes a request that is not outstanding: the completion is dropped"}

// Join is errors.Join, which would be inlined: with it in its place, a program is 25 KB smaller.
//
//go:noinline
func Join(errs ...error) error { return errors.Join(errs...) }

// NotSupported returns the error for something that a device lacks.
//
//go:noinline
func NotSupported(op, why string) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP, Detail: why}
}

// Limit returns the error for a field of a configuration that exceeds a limit of the device.
//
//go:noinline
func Limit(op, field string, asked, most int) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
		Detail: fmt.Sprintf("%s is %d, and the device supports up to %d: lower it", field, asked, most)}
}
