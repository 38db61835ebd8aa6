package provider

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// UnknownOptions returns the error for a [uverbs.QPConfig] whose Options are of a type that the provider does not have,
// and nil if there are no Options.
func UnknownOptions(options any) error {
	if options == nil {
		return nil
	}
	return &uverbs.Error{Op: "create QP", Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
		Detail: fmt.Sprintf("Options is a %T, which the driver of this device does not have: leave it out", options)}
}
