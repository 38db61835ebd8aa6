package mlx5

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// kernelError wraps the error of a system call.
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
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT:
		e.Kind = uverbs.ErrNotSupported
	case unix.EINVAL:
		e.Kind = uverbs.ErrInvalid
	}
	return e
}

// pinned adds to the error of a create command how much memory the kernel had to pin: the rings
// and the page of the doorbell record.
func pinned(err error, mem *provider.Mapping) error {
	return driver.Pinned(err, len(mem.Bytes())+os.Getpagesize())
}

// tooLarge returns the error for a number that exceeds the device's limit.
//
//go:noinline
func tooLarge(op, name string, asked, limit int) error {
	return invalid(op, "%s is %d, the device accepts %d at most", name, asked, limit)
}

//go:noinline
func invalid(op, format string, args ...any) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL, Detail: fmt.Sprintf(format, args...)}
}

//go:noinline
func notSupported(op, why string) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP, Detail: why}
}

//go:noinline
func badABI(format string, args ...any) error {
	return &uverbs.Error{Op: "open", Kind: uverbs.ErrABI,
		Detail: "the kernel's reply is unknown to this library: " + fmt.Sprintf(format, args...)}
}

// errAllTargets is returned by a create when no index is left by which CQEs can name the queue.
var errAllTargets error = &uverbs.Error{Op: "create queue", Kind: uverbs.ErrInvalid,
	Detail: "the Context has all the QPs and XRC SRQs that it can have: 2^24"}

var errShortPage error = badABI("a register page smaller than its registers")

// errStray is returned by Poll for a completion of a queue that does not exist.
var errStray error = &uverbs.Error{Op: "poll CQ", Kind: uverbs.ErrABI,
	Detail: "a completion names a queue that this context does not have"}

// errFormat is returned by Poll for an entry that it cannot parse.
var errFormat error = &uverbs.Error{Op: "poll CQ", Kind: uverbs.ErrABI, Detail: "a completion of an unknown kind"}
