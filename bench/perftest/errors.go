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

// An Error is a mistake in what one end was told, or in what came from it.
type Error struct {
	Side   Side
	Option string // as on the command line; "" when it is no option's fault
	Detail string // "" where Err says all
	Err    error  // what shows it, such as a completion's; or nil
}

// Unwrap returns what shows the mistake.
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

func atPeer(option, format string, args ...any) error {
	return &Error{Side: Peer, Option: option, Detail: fmt.Sprintf(format, args...)}
}

// ErrInterrupted is the end of a run that its context ended. What was measured
// until then has been reported.
var ErrInterrupted = errors.New("interrupted")

// A deviceError is the end of a run whose device is gone.
type deviceError struct{ err error }

func (e *deviceError) Error() string { return e.err.Error() }
func (e *deviceError) Unwrap() error { return e.err }

// ended is why a run ends whose context has.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	var gone *deviceError
	if errors.As(cause, &gone) {
		return cause
	}
	return ErrInterrupted
}

// stands tells whether the figures of a run that has ended early are worth
// reporting: not when the two ends did different things.
func figuresValid(err error) bool {
	var e *Error
	return !errors.As(err, &e) || e.Option == ""
}
