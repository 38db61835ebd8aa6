package vfiouser

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The kinds of errors. An *Error is each of them to errors.Is.
var (
	// ErrMalformed means that a stream violates the protocol. It ends the
	// connection.
	ErrMalformed = errors.New("malformed message")
	// ErrLost means that a connection broke, or ended within a message.
	ErrLost = errors.New("connection lost")
	// ErrRefused means that a message was invalid. The client gets the errno,
	// unless it requested no reply.
	ErrRefused = errors.New("message refused")
	// ErrDevice means that the device failed to process a message.
	ErrDevice = errors.New("the device failed")
	// ErrPanic means that a device panicked while it processed a message.
	ErrPanic = errors.New("the device panicked")
	// ErrNotMapped means that memory is not mapped by the client.
	ErrNotMapped = errors.New("address not mapped")
	// ErrNotEnabled means that the client has not enabled an interrupt.
	ErrNotEnabled = errors.New("interrupt not enabled")
)

// An Error is any error of this package.
type Error struct {
	Kind    error      // one of the Err… above
	Command Command    // of the message; 0 if there was none
	Errno   unix.Errno // of the reply; 0 if there was none
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

// Unwrap returns the kind, the errno and the cause.
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

// deviceError returns the error for a message that failed in the device with
// err. The client gets the errno that err wraps, or EIO.
func deviceError(err error) error {
	errno := unix.EIO
	errors.As(err, &errno)
	return &Error{Kind: ErrDevice, Errno: errno, Err: err}
}
