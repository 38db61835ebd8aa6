package perftest

import (
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
	Detail string
}

func (e *Error) Error() string {
	if e.Option == "" {
		return e.Detail
	}
	return fmt.Sprintf("%s %s: %s", e.Option, e.Side, e.Detail)
}

func here(option, format string, args ...any) error {
	return &Error{Here, option, fmt.Sprintf(format, args...)}
}

func atPeer(option, format string, args ...any) error {
	return &Error{Peer, option, fmt.Sprintf(format, args...)}
}

// ErrInterrupted is the end of a run that its context ended. What was measured
// until then has been reported.
var ErrInterrupted = errors.New("interrupted; the figures are of what was done until then")
