// Package conntest is a test of cm, rdma and rsocket on the device of a provider.
package conntest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
)

// Run tests that the packages work, except for what needs memory windows, which the device does not have. addr is its
// address. shared says whether it has SRQs.
func Run(t *testing.T, addr string, shared bool) {
	t.Run("rdma", func(t *testing.T) { testCalls(t, addr, 0) })
	if shared {
		t.Run("rdma, shared receives", func(t *testing.T) { testCalls(t, addr, 64) })
	}
	t.Run("rsocket", func(t *testing.T) { testStream(t, addr) })
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// testCalls calls a server whose connections have shared receives, if there are to be any.
func testCalls(t *testing.T, addr string, shared int) {
	const eager = 1 << 15
	ctx, options := t.Context(), &rdma.Options{EagerSize: eager}
	l := must(rdma.Listen(addr+":7471",
		&rdma.ListenOptions{Options: *options, SharedReceives: shared}))(t)
	served := make(chan error)
	go func() {
		c, err := l.Accept(ctx)
		if err == nil {
			err = c.ServeCalls(ctx, func(request []byte) []byte { return append(bytes.Clone(request), '!') })
			err = errors.Join(err, c.Close())
		}
		served <- err
	}()
	c := must(rdma.Dial(ctx, addr+":7471", options))(t)
	if _, err := c.Call(ctx, make([]byte, 1<<16)); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("a message that needs a memory window: %v", err)
	}
	for n := 1; 4*n < eager; n *= 3 {
		request := bytes.Repeat([]byte("call"), n)
		reply := must(c.Call(ctx, request))(t)
		if got := reply.Copy(); !bytes.Equal(got, append(request, '!')) {
			t.Fatalf("a reply of %d bytes to %d", len(got), len(request))
		}
	}
	if err := errors.Join(c.Close(), <-served, l.Close()); err != nil {
		t.Error(err)
	}
}

// testStream sends a stream through a server that echoes it.
func testStream(t *testing.T, addr string) {
	l := must(rsocket.Listen("tcp", addr+":7472"))(t)
	echoed := make(chan error)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(c, c)
			err = errors.Join(err, c.Close())
		}
		echoed <- err
	}()
	c := must(new(rsocket.Dialer).DialContext(t.Context(), "tcp", addr+":7472"))(t)
	sent := bytes.Repeat([]byte("a stream"), 1<<14)
	wrote := make(chan error)
	go func() {
		_, err := c.Write(sent)
		wrote <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("echo: %v, the same: %t", err, bytes.Equal(got, sent))
	}
	if err := errors.Join(<-wrote, c.Close(), <-echoed, l.Close()); err != nil {
		t.Error(err)
	}
}
