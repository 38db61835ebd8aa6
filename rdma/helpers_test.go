package rdma_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// patience is how long a test waits for what happens soon.
const patience = 30 * time.Second

// background runs f, and returns where its error arrives.
func background(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// within returns the error that arrives at done, and fails the test if there is none in time.
func within(t testing.TB, done <-chan error, what string) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatalf("%s does not return", what)
		return nil
	}
}

// until waits until a condition holds.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// isClosing reports whether Close or Shutdown has been called.
func isClosing(c *rdma.Conn) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.Recv(ended)
	return errors.Is(err, net.ErrClosed)
}
