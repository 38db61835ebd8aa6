package bnxt_re

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

//go:noinline
func notSupported(op, why string) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP, Detail: why}
}

// limit returns the error for a field of a configuration that exceeds a limit of the device.
//
//go:noinline
func limit(op, field string, asked, most int) error {
	return &uverbs.Error{Op: op, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
		Detail: fmt.Sprintf("%s is %d, and the device supports up to %d: lower it", field, asked, most)}
}

// errQPs is returned by a create when no handle is left by which completions can name the QP.
var errQPs error = &uverbs.Error{Op: "create QP", Kind: uverbs.ErrInvalid, Errno: unix.ENOMEM,
	Detail: fmt.Sprintf("the Context has %d QPs, which is the limit of this library: close some, or open the device again",
		provider.MaxHandles)}
