package control

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
)

// A Kind is a kind of errors, for errors.Is.
type Kind string

const (
	ErrSyntax  Kind = "invalid request" // the line is not a request
	ErrMethod  Kind = "unknown method"
	ErrParam   Kind = "invalid parameter"
	ErrUnknown Kind = "not found" // port, device, fault, queue
	ErrRefused Kind = "refused"   // by the device: see the detail
)

func (k Kind) Error() string { return string(k) }

// An Error is the error of a request.
type Error struct {
	Kind   Kind   `json:"kind"`
	Detail string `json:"detail"`
}

func (e *Error) Error() string { return fmt.Sprintf("control: %v: %s", e.Kind, e.Detail) }

func (e *Error) Unwrap() error { return e.Kind }

func errorf(kind Kind, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}

// asError converts other packages' errors to an Error.
func asError(err error) *Error {
	var own *Error
	var network *fabric.Error
	switch {
	case errors.As(err, &own):
		return own
	case !errors.As(err, &network):
		return &Error{ErrRefused, err.Error()}
	case network.Kind == fabric.ErrParam:
		return &Error{ErrParam, network.Detail}
	case network.Kind == fabric.ErrUnknown:
		return &Error{ErrUnknown, network.Detail}
	}
	return &Error{ErrRefused, network.Error()}
}
