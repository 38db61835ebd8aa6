package efa

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

// limit returns the error for a field of a QP's configuration that exceeds a limit of the device.
func limit(field string, asked, most int, per string) error {
	return &uverbs.Error{Op: "create QP", Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
		Detail: fmt.Sprintf("%s is %d, and the device supports up to %d%s: lower it", field, asked, most, per)}
}

// errCompletion reports a completion that the device cannot have written: it names no request. Poll drops it.
var errCompletion error = &uverbs.Error{Op: "poll CQ", Kind: uverbs.ErrABI,
	Detail: "the device completes a request that is not outstanding: the completion is dropped"}

// errEnded is returned by posts to a QP that cannot carry them out any more.
var errEnded error = &uverbs.Error{Op: "post", Kind: uverbs.ErrState, Errno: unix.EINVAL,
	Detail: "an EFA accepts no requests in ERR, and no sends in SQE: move the QP to RESET and RTS"}
