package rproxy

import (
	"context"
	"errors"
	"io"
	"time"
)

// reset closes a connection so that the peer notices that it has not ended in order.
func reset(c conn) error { return errors.Join(c.SetLinger(0), c.Close()) }

// abort resets connections because of err. It returns err, joined with the errors of resets if there are any.
func abort(err error, cs ...conn) error {
	for _, c := range cs {
		if failed := reset(c); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// forward copies between two connections until both directions have ended, and closes the connections. If one of them
// fails, or ctx ends, it resets both. It returns how many bytes it has copied from a to b and from b to a.
func forward(ctx context.Context, a, b conn) (ab, ba int64, err error) {
	type result struct {
		n     *int64
		count int64
		err   error
	}
	results := make(chan result, 2)
	go func() { n, err := copyUntilEOF(b, a); results <- result{&ab, n, err} }()
	go func() { n, err := copyUntilEOF(a, b); results <- result{&ba, n, err} }()
	done := ctx.Done()
	for left := 2; left > 0; {
		select {
		case r := <-results:
			*r.n = r.count
			left--
			if err == nil && r.err != nil {
				err = r.err
				interrupt(a, b) // the error of the other direction is a consequence
			}
		case <-done:
			done = nil
			if err == nil {
				err = context.Cause(ctx)
			}
			interrupt(a, b)
		}
	}
	if err != nil {
		return ab, ba, abort(err, a, b)
	}
	return ab, ba, errors.Join(a.Close(), b.Close())
}

// interrupt ends all calls on connections.
func interrupt(cs ...conn) {
	for _, c := range cs {
		_ = c.SetDeadline(time.Unix(1, 0)) // they are open
	}
}

// copyUntilEOF copies from one connection to another, and passes the end on.
func copyUntilEOF(to, from conn) (int64, error) {
	n, err := io.Copy(to, from)
	if err != nil {
		return n, err
	}
	return n, to.CloseWrite()
}
