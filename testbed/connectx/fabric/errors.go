package fabric

import (
	"errors"
	"fmt"
)

// Kinds of errors, for errors.Is.
var (
	ErrParam    = errors.New("invalid parameter")
	ErrUnknown  = errors.New("no such thing")
	ErrExists   = errors.New("exists already")
	ErrProtocol = errors.New("protocol violation")
	ErrClosed   = errors.New("closed")
)

// An Error is what was wrong with a request, or with what a socket brought.
type Error struct {
	Kind   error // one of the above
	Detail string
}

func (e *Error) Error() string { return fmt.Sprintf("fabric: %v: %s", e.Kind, e.Detail) }

func (e *Error) Unwrap() error { return e.Kind }

func errorf(kind error, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}
