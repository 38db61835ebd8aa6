package uverbs

import (
	"errors"

	"github.com/goverbs/goverbs/internal/driver"
	"golang.org/x/sys/unix"
)

// explainLimit wraps the error of a create command. If the kernel returned only EINVAL or
// ENOMEM, explainLimit checks whether the requested number exceeds the device's limit.
func (c *Context) explainLimit(op string, err error, what string, asked int, limit func(*DeviceAttr) int) error {
	detail := ""
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOMEM) {
		if a, qerr := c.QueryDevice(); qerr == nil && asked > limit(a) {
			detail = what + " is " + sitoa(asked) + ", the device accepts " + sitoa(limit(a)) + " at most"
		}
	}
	if detail == "" && errors.Is(err, unix.ENOMEM) {
		detail = driver.NoObjectLeft
	}
	return c.wrap(op, c.name, err, detail)
}
