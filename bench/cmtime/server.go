package main

import (
	"context"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// serve takes the connections of a client.
func (b *bench) serve(ctx context.Context) error {
	id, err := b.ch.CreateID(cm.PSTCP)
	if err != nil {
		return err
	}
	defer id.Close()
	if err := id.Bind(b.bind); err != nil {
		return err
	}
	if err := id.Listen(0); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "cmtime: listening on", id.LocalAddr())
	for _, n := range []int{1, b.count} {
		b.conns = nil
		if err := b.acceptAll(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// acceptAll takes n connections, and waits for their ends.
func (b *bench) acceptAll(ctx context.Context, n int) error {
	if err := b.take(ctx, n, b.ch.Next, b.accept); err != nil {
		return err
	}
	return b.destroy()
}

// take hands n requests to accept, which works beside the events, and waits for
// as many ends. An error of either ends both.
func (b *bench) take(ctx context.Context, n int, next func(context.Context) (*cm.Event, error), accept func(*conn) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	requests := make(chan *conn, n)
	accepted := make(chan error, 1)
	go func() {
		var err error
		for c := range requests {
			if err == nil {
				err = accept(c)
			}
			if err != nil {
				cancel(err)
			}
		}
		accepted <- err
	}()
	err := b.ends(ctx, n, next, requests)
	close(requests)
	if failed := <-accepted; failed != nil {
		return failed // what ended the events
	}
	return err
}

// ends reads events until n connections have ended.
func (b *bench) ends(ctx context.Context, n int, next func(context.Context) (*cm.Event, error), requests chan<- *conn) error {
	for ended := 0; ended < n; {
		e, err := next(ctx)
		if err == nil && e.Type != cm.EventDisconnected {
			err = e.Err()
		}
		if err != nil {
			return err
		}
		switch e.Type {
		case cm.EventConnectRequest:
			c := &conn{id: e.ID}
			e.ID.Context = c
			b.conns = append(b.conns, c)
			if len(b.conns) > n {
				return fmt.Errorf("the client connects more than %d ids: give both the same -c", n)
			}
			requests <- c
		case cm.EventDisconnected:
			ended++
			if err := e.ID.Disconnect(); err != nil {
				return err
			}
		}
	}
	return nil
}

// accept takes up a request.
func (b *bench) accept(c *conn) error {
	if err := b.makeQP(c); err != nil {
		return err
	}
	if err := c.modify(uverbs.StateInit, uverbs.StateRTR, uverbs.StateRTS); err != nil {
		return err
	}
	return c.id.Accept(c.param())
}
