package ether

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// invalid returns the error for an argument that is refused without asking the kernel.
func invalid(op, object, detail string) error {
	return &uverbs.Error{Op: op, Object: object, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL, Detail: detail}
}

// explained adds the cause that explain finds to an error that has none.
func explained(err error, explain func(error) string) error {
	var e *uverbs.Error
	if !errors.As(err, &e) || e.Detail != "" {
		return err
	}
	with := *e
	with.Detail = explain(err)
	return &with
}

// A request is a value of a configuration and the limit of the device.
type request struct {
	name         string
	asked, limit int
}

// tooMuch explains which value exceeds the limit of the device.
func tooMuch(requests ...request) string {
	for _, r := range requests {
		if r.asked > r.limit {
			return r.name + " is " + strconv.Itoa(r.asked) + ", the device accepts " + strconv.Itoa(r.limit) + " at most"
		}
	}
	return ""
}
