package perftest

import (
	"context"
	"errors"
	"fmt"
)

// A Side is one of the two ends of a test.
type Side string

// The sides.
const (
	Here Side = "here"
	Peer Side = "at the peer"
)

// An Error is a mistake in the options of one end, or in the data that it sent.
type Error struct {
	Side   Side
	Option string // as on the command line; "" if no option is wrong
	Detail string // "" if Err says everything
	Err    error  // the error that shows the mistake, such as a completion's; or nil
}

// Unwrap returns the error that shows the mistake, or nil.
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Error() string {
	text := e.Detail
	switch {
	case e.Err != nil && text == "":
		text = e.Err.Error()
	case e.Err != nil:
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	if e.Option != "" {
		text = fmt.Sprintf("%s %s: %s", e.Option, e.Side, text)
	}
	return text
}

func here(option, format string, args ...any) error {
	return &Error{Side: Here, Option: option, Detail: fmt.Sprintf(format, args...)}
}

func atPeer(option, format string, args ...any) *Error {
	return &Error{Side: Peer, Option: option, Detail: fmt.Sprintf(format, args...)}
}

// ErrInterrupted is the error of a run that ended because its context did. The results
// so far have been printed.
var ErrInterrupted = errors.New("interrupted")

// A deviceError is the error of a run whose device is gone.
type deviceError struct{ err error }

func (e *deviceError) Error() string { return e.err.Error() }
func (e *deviceError) Unwrap() error { return e.err }

// ended returns the error of a run whose context has ended.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	var gone *deviceError
	if errors.As(cause, &gone) {
		return cause
	}
	return ErrInterrupted
}

// figuresValid reports whether the results of a run that failed are meaningful. They
// are not if the two ends ran different tests.
func figuresValid(err error) bool {
	var e *Error
	return !errors.As(err, &e) || e.Option == ""
}
