package main

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/bench/measure"
	"github.com/goverbs/goverbs/rdma"
)

// newCalls returns ways to send a message and to receive its first bytes: by Send and Recv, by Call, by Call with a
// Handler, which has a goroutine and a context, and by CallBuffer from a Region, without a copy.
func newCalls(ctx context.Context, addr string) ([]*measure.Level, error) {
	o := &rdma.Options{KeepAlive: -1}
	echo, err := newEasy(ctx, addr, &rdma.ListenOptions{Options: *o})
	if err != nil {
		return nil, err
	}
	echo.Name = "_echo"
	echo.Call = func(n int) error { return errors.Join(echo.Conn.Send(n), echo.Conn.Recv()) }
	data := make([]byte, largeSize)
	region := rdma.RegionOf(data)
	simple := func(ctx context.Context, c *rdma.Conn) error {
		return c.ServeCalls(ctx, func(b []byte) []byte { return b[:smallSize] })
	}
	handler := func(_ context.Context, r *rdma.Request) ([]byte, error) { return r.Bytes()[:smallSize], nil }
	copied := func(c *rdma.Conn, n int) (rdma.Message, error) { return c.Call(ctx, data[:n]) }
	inPlace := func(c *rdma.Conn, n int) (m rdma.Message, err error) {
		b, err := c.BufferOf(region, 0, n)
		if err != nil {
			return m, err
		}
		return c.CallBuffer(ctx, b)
	}
	levels := []*measure.Level{echo}
	for _, k := range []struct {
		name  string
		serve func(context.Context, *rdma.Conn) error
		call  func(c *rdma.Conn, n int) (rdma.Message, error)
	}{{"_call", simple, copied}, {"_handled", rdma.Handle(handler, nil), copied}, {"_region", simple, inPlace}} {
		l, err := newCall(ctx, addr, o, k.serve, k.call)
		if err != nil {
			return nil, err
		}
		l.Name = k.name
		levels = append(levels, l)
	}
	last := levels[len(levels)-1]
	closeConns := last.Close
	last.Close = func() error { return errors.Join(closeConns(), region.Close()) }
	return levels, nil
}

// newCall returns a way to call.
func newCall(ctx context.Context, addr string, o *rdma.Options, serve func(context.Context, *rdma.Conn) error,
	call func(c *rdma.Conn, n int) (rdma.Message, error)) (*measure.Level, error) {
	l, err := rdma.Listen(addr+":0", &rdma.ListenOptions{Options: *o})
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	go func() { served <- l.Serve(ctx, serve) }()
	c, err := rdma.Dial(ctx, l.Addr().String(), o)
	return &measure.Level{Call: func(n int) error { return headOf(call(c, n)) },
		Close: func() error { return errors.Join(c.Close(), l.Close(), <-served) }}, err
}

// headOf takes the reply of a call.
func headOf(m rdma.Message, err error) error {
	if err == nil && len(m.Bytes()) != smallSize {
		err = errors.New("the reply has another length")
	}
	m.Release()
	return err
}
