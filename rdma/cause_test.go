package rdma

import (
	"context"
	"errors"
	"io"
	"testing"
)

// A listCause is an error that cannot be compared.
type listCause []error

func (listCause) Error() string { return "several errors" }

// TestCauseThatCannotBeCompared checks that the end of a ctx with such a cause ends only the call.
func TestCauseThatCannotBeCompared(t *testing.T) {
	c, _ := hostilePair(t, nil, honestHello())
	ctx, cancel := context.WithCancelCause(bounded(t))
	received := make(chan error, 1)
	go func() { _, err := c.Recv(ctx); received <- err }()
	soon(t, "Recv waits", c.waiting)
	cancel(listCause{io.EOF})
	if err := <-received; !errors.Is(err, context.Canceled) {
		t.Errorf("Recv returns %v", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("the connection has ended: %v", err)
	}
}
