package rsocket_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// patience is how long a test waits for what happens soon.
const patience = 20 * time.Second

// limit returns a context that ends before the test hangs.
func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

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

// read reads n bytes and compares them with want.
func read(t testing.TB, c io.Reader, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(c, got)
	check(t, err)
	if string(got) != string(want) {
		t.Fatalf("%d bytes have changed", len(want))
	}
}

func write(t testing.TB, c io.Writer, b []byte) {
	t.Helper()
	n, err := c.Write(b)
	check(t, err)
	if n != len(b) {
		t.Fatalf("Write returns %d of %d", n, len(b))
	}
}

// readEnd returns the error of a Read that finds no data.
func readEnd(t testing.TB, c *rsocket.Conn) error {
	t.Helper()
	return within(t, background(func() error {
		n, err := c.Read(make([]byte, 1))
		if err == nil {
			return errors.New("Read returns data: " + string(rune('0'+n)))
		}
		return err
	}), "Read")
}

// isEOF checks that a Read finds the orderly end of the stream.
func isEOF(t testing.TB, c *rsocket.Conn) {
	t.Helper()
	if err := readEnd(t, c); err != io.EOF {
		t.Fatalf("Read returns %v, want EOF", err)
	}
}
