package efa

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// limit returns the error for a field of a QP's configuration that exceeds a limit of the device.
//
//go:noinline
func limit(field string, asked, most int, per string) error {
	return &uverbs.Error{Op: "create QP", Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
		Detail: fmt.Sprintf("%s is %d, and the device supports up to %d%s: lower it", field, asked, most, per)}
}

// errEnded is returned by posts to a QP that cannot carry them out any more.
var errEnded error = &uverbs.Error{Op: "post", Kind: uverbs.ErrState, Errno: unix.EINVAL,
	Detail: "an EFA accepts no requests in ERR, and no sends in SQE: move the QP to RESET and RTS"}
