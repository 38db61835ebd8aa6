package fabric

import (
	"errors"
	"fmt"
)

// Kinds of errors, for errors.Is.
var (
	ErrParam    = errors.New("invalid parameter")
	ErrUnknown  = errors.New("not found")
	ErrExists   = errors.New("already exists")
	ErrProtocol = errors.New("protocol violation")
	ErrClosed   = errors.New("closed")
)

// An Error is an error of a request, or of a socket.
type Error struct {
	Kind   error // one of the above
	Detail string
}

func (e *Error) Error() string { return fmt.Sprintf("fabric: %v: %s", e.Kind, e.Detail) }

func (e *Error) Unwrap() error { return e.Kind }

func errorf(kind error, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}
