package ends_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// A rig is a network with a server and a client.
type rig struct {
	net            *verbstest.Network
	server, client *verbstest.Machine
	addr           string // of the server
}

func newRig(t *testing.T) *rig {
	n := verbstest.NewNetwork(t)
	n.SetTimeouts(verbstest.Timeouts{Ack: 10}) // 4 ms: tests power machines off
	r := &rig{net: n, server: n.Machine(), client: n.Machine()}
	r.addr = r.server.AddrPort(7471).String()
	return r
}

// must returns v, and ends the test if there is an error.
func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// on returns the result of f on a machine.
func on[T any](t *testing.T, m *verbstest.Machine, f func() (T, error)) T {
	t.Helper()
	var v T
	var err error
	m.Run(func() { v, err = f() })
	return must(t, v, err)
}

// closeLater closes an object at the end of the test. What remains of a connection may be an error.
func closeLater[C io.Closer](t *testing.T, c C) C {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// bounded returns a context that does not end before the test, unless a call hangs.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// passed returns a context whose deadline passes while a call waits.
func passed(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// canceled returns a context that is canceled with errCause while a call waits.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	timer := time.AfterFunc(5*time.Millisecond, func() { cancel(errCause) })
	t.Cleanup(func() { timer.Stop(); cancel(nil) })
	return ctx
}

// tcp returns the two ends of a connection.
func tcp(t *testing.T) (here, there net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	defer closeLater(t, must(t, l, err)).Close()
	here, err = net.Dial("tcp", l.Addr().String())
	closeLater(t, must(t, here, err))
	there, err = l.Accept()
	return here, closeLater(t, must(t, there, err))
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }
