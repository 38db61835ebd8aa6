package bnxt_re_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
)

// Packages cm, rdma and rsocket work on the device, except for what needs memory windows.
func TestConnections(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		fakebnxt.New(t, 1, cfg)
		t.Run("rdma", func(t *testing.T) { testCalls(t, 0) })
		t.Run("rdma, shared receives", func(t *testing.T) { testCalls(t, 64) })
		t.Run("rsocket", testStream)
	})
}

func testCalls(t *testing.T, shared int) {
	const eager = 1 << 15
	ctx, options := t.Context(), &rdma.Options{EagerSize: eager}
	l := must(rdma.Listen(fmt.Sprintf("%v:7471", fakedev.Addr),
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
	c := must(rdma.Dial(ctx, fmt.Sprintf("%v:7471", fakedev.Addr), options))(t)
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

func testStream(t *testing.T) {
	l := must(rsocket.Listen("tcp", fmt.Sprintf("%v:7472", fakedev.Addr)))(t)
	echoed := make(chan error)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(c, c)
			err = errors.Join(err, c.Close())
		}
		echoed <- err
	}()
	c := must(new(rsocket.Dialer).DialContext(t.Context(), "tcp", fmt.Sprintf("%v:7472", fakedev.Addr)))(t)
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
