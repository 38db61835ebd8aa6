// Package ctxerr has the errors of calls that are ended by their ctx, so that they match the same in every package.
package ctxerr

import (
	"context"
	"errors"
	"os"
)

// Of returns the error of a call that ctx has ended. It matches ctx.Err(), context.Cause(ctx) and, after the deadline,
// os.ErrDeadlineExceeded. Its text is that of the cause.
func Of(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == context.DeadlineExceeded && cause == err:
		return deadline
	case cause == err:
		return err
	}
	return &ended{err, cause}
}

// Is reports whether err is the error of a call that ctx has ended.
func Is(ctx context.Context, err error) bool { return ctx.Err() != nil && errors.Is(err, ctx.Err()) }

// deadline is the error after a deadline without a cause.
var deadline error = &ended{context.DeadlineExceeded, context.DeadlineExceeded}

// ended implements net.Error.
type ended struct{ err, cause error }

func (e *ended) Error() string        { return e.cause.Error() }
func (e *ended) Unwrap() []error      { return []error{e.cause, e.err} }
func (e *ended) Is(target error) bool { return target == os.ErrDeadlineExceeded && e.Timeout() }

// Timeout reports whether the deadline has passed.
func (e *ended) Timeout() bool {
	return e.err == context.DeadlineExceeded || errors.Is(e.cause, context.DeadlineExceeded)
}

// Temporary is Timeout.
func (e *ended) Temporary() bool { return e.Timeout() }
