package provider

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// KernelError wraps the error of a system call. The caller in package uverbs
// decides whether EIO means that the device is gone.
func KernelError(op, object string, err error) error {
	e := &uverbs.Error{Op: op, Object: object}
	if errno, ok := err.(unix.Errno); ok {
		e.Errno = errno
	} else {
		e.Kind, e.Detail = uverbs.ErrClosed, err.Error()
	}
	return e
}
