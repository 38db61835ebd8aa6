package mlx5

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// kernelError wraps what a system call answered.
func kernelError(op, object string, err error, detail string) error {
	var known *uverbs.Error
	if errors.As(err, &known) {
		return known
	}
	e := &uverbs.Error{Op: op, Object: object, Detail: detail}
	if !errors.As(err, &e.Errno) {
		e.Kind, e.Detail = uverbs.ErrClosed, err.Error()
		return e
	}
	switch e.Errno {
	case unix.EIO:
		e.Kind, e.Detail = uverbs.ErrDeviceGone, ""
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT:
		e.Kind = uverbs.ErrNotSupported
	case unix.EINVAL:
		e.Kind = uverbs.ErrInvalid
	}
	return e
}

// tooLarge says which number the device does not take.
func tooLarge(op, name string, asked, limit int) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
		Detail: fmt.Sprintf("%s is %d, the device takes %d at most", name, asked, limit)}
}

func badABI(format string, args ...any) error {
	return &uverbs.Error{Op: "open", Kind: uverbs.ErrABI,
		Detail: "the kernel's answer is none that this library knows: " + fmt.Sprintf(format, args...)}
}

// errAllTargets is the error of a create when the numbers have run out by which
// CQEs name their queue.
var errAllTargets error = &uverbs.Error{Op: "create queue", Kind: uverbs.ErrInvalid, Detail: "the Context has all the QPs and XRC SRQs that it can have: 2^24"}

var errShortPage error = badABI("a register page smaller than its registers")

// errStray is what Poll answers to a completion of a QP that does not exist.
var errStray error = &uverbs.Error{Op: "poll CQ", Kind: uverbs.ErrABI, Detail: "a completion names a queue that this context does not have"}

// errFormat is what Poll answers to an entry that it cannot read.
var errFormat error = &uverbs.Error{Op: "poll CQ", Kind: uverbs.ErrABI, Detail: "a completion of an unknown kind"}
