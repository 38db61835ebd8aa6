package uverbs

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/internal/driver"
	"golang.org/x/sys/unix"
)

// wrap returns the [Error] for a command's error.
func (c *Context) wrap(op, object string, err error, detail string) error {
	if err == nil {
		return nil
	}
	var said *Error
	var known *sentinel
	var errno unix.Errno
	switch {
	case errors.As(err, &said): // a provider's error is more specific
		e := *said
		if e.Object == "" {
			e.Object = object
		}
		if e.Detail == "" {
			e.Detail = detail
		}
		if e.Kind == nil && c.isDeviceGone(err) {
			e.Kind = ErrDeviceGone
		}
		return &e
	case errors.Is(err, os.ErrClosed):
		return &Error{Op: op, Object: object, Kind: ErrClosed}
	case errors.As(err, &known):
		return &Error{Op: op, Object: object, Kind: known, Errno: known.errno, Detail: detail}
	case !errors.As(err, &errno):
		return &Error{Op: op, Object: object, Err: err}
	}
	if e := c.exhausted(op, object, detail, err, errno); e != nil {
		return e
	}
	kind := kindOf(errno)
	if kind == nil && c.isDeviceGone(errno) {
		kind = ErrDeviceGone
	}
	return &Error{Op: op, Object: object, Kind: kind, Errno: errno, Detail: detail}
}

// exhausted returns an error that explains which limit of the process made the
// kernel refuse a command. It returns nil for other errors, and if detail already
// explains the error.
func (c *Context) exhausted(op, object, detail string, err error, errno unix.Errno) error {
	var pinned *driver.PinnedError
	switch {
	case errno == unix.ENOMEM && errors.As(err, &pinned):
		if text := explainMemlock(c.dev, pinnedPages(0, pinned.Bytes),
			" for the rings, which the device's driver pins,"); text != "" {
			return &Error{Op: op, Object: object, Kind: ErrMemlock, Errno: errno, Detail: text}
		}
	case errno == unix.EAGAIN && creates(op) && detail == "":
		return &Error{Op: op, Object: object, Errno: errno, Detail: explainCgroup(rootOf(c.dev), c.name, op)}
	}
	return nil
}

// creates reports whether an operation creates an object that the rdma cgroup
// counts.
func creates(op string) bool {
	verb, _, _ := strings.Cut(op, " ")
	return slices.Contains([]string{"open", "create", "allocate", "register", "import"}, verb)
}
