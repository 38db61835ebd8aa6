package vfiouser

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The kinds of errors. An *Error is each of them to errors.Is.
var (
	// ErrMalformed is of a stream that breaks the protocol. It ends the
	// connection.
	ErrMalformed = errors.New("malformed message")
	// ErrLost is of a connection that broke, or ended inside of a message.
	ErrLost = errors.New("connection lost")
	// ErrRefused is of a message that asks for what cannot be. The client has
	// its errno, unless it asked for no reply.
	ErrRefused = errors.New("message refused")
	// ErrDevice is of a message that the device failed to carry out.
	ErrDevice = errors.New("the device failed")
	// ErrPanic is of a device that panicked while it carried out a message.
	ErrPanic = errors.New("the device panicked")
	// ErrNotMapped is of an access to memory that the client has not given.
	ErrNotMapped = errors.New("address not mapped")
	// ErrNotEnabled is of an interrupt that the client does not listen to.
	ErrNotEnabled = errors.New("interrupt not enabled")
)

// An Error is any error of this package.
type Error struct {
	Kind    error      // one of the Err… above
	Command Command    // of the message; 0 where there was none
	Errno   unix.Errno // what the client was answered; 0 where there was no answer
	Detail  string
	Err     error // the device's or the system's error; may be nil
}

// Error implements error.
func (e *Error) Error() string {
	s := "vfio-user"
	if e.Command != 0 {
		s += " " + e.Command.String()
	}
	s += ": " + e.Kind.Error()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap lets errors.Is and errors.As see the kind, the errno and the cause.
func (e *Error) Unwrap() []error {
	causes := []error{e.Kind}
	if e.Errno != 0 {
		causes = append(causes, e.Errno)
	}
	if e.Err != nil {
		causes = append(causes, e.Err)
	}
	return causes
}

func malformed(c Command, format string, args ...any) error {
	return &Error{Kind: ErrMalformed, Command: c, Detail: fmt.Sprintf(format, args...)}
}

func refused(errno unix.Errno, format string, args ...any) error {
	return &Error{Kind: ErrRefused, Errno: errno, Detail: fmt.Sprintf(format, args...)}
}

// deviceError is the error of a message that the device answered with err. The
// client gets the errno that is in it, and EIO otherwise.
func deviceError(err error) error {
	errno := unix.EIO
	errors.As(err, &errno)
	return &Error{Kind: ErrDevice, Errno: errno, Err: err}
}
