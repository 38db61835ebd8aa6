package bnxt_re

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// badABI returns the error for a reply of the kernel that cannot be used.
func badABI(op, format string, args ...any) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrABI,
		Detail: "the kernel's reply is none that this library knows: " + fmt.Sprintf(format, args...)}
}

// kernelError wraps the error of a system call.
func kernelError(op string, err error) error {
	e := &uverbs.Error{Op: op}
	if !errors.As(err, &e.Errno) {
		e.Kind, e.Detail = uverbs.ErrClosed, err.Error()
	}
	return e
}

func notSupported(op, why string) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP, Detail: why}
}

// limit returns the error for a field of a configuration that exceeds a limit of the device.
func limit(op, field string, asked, most int) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
		Detail: fmt.Sprintf("%s is %d, and the device supports up to %d: lower it", field, asked, most)}
}

// errCompletion reports a completion that the device cannot have written: it names no request. Poll drops it.
var errCompletion error = &uverbs.Error{Op: "poll CQ", Kind: uverbs.ErrABI,
	Detail: "the device completes a request that is not outstanding: the completion is dropped"}

// errQPs is returned by a create when no handle is left by which completions can name the QP.
var errQPs error = &uverbs.Error{Op: "create QP", Kind: uverbs.ErrInvalid, Errno: unix.ENOMEM,
	Detail: fmt.Sprintf("the Context has %d QPs, which is the limit of this library: close some, or open the device again",
		maxQPs)}
