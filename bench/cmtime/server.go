package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// serve accepts the connections of one client.
func (b *bench) serve(ctx context.Context) (err error) {
	id, err := b.ch.CreateID(cm.PSTCP)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.Close()) }()
	if err := id.Bind(b.bind); err != nil {
		return err
	}
	if err := id.Listen(0); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "cmtime: listening on", id.LocalAddr())
	for _, n := range []int{1, b.count} {
		b.conns = nil
		err := b.acceptRequests(ctx, n, b.ch.Next, b.accept)
		if err == nil {
			err = b.destroy(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// acceptRequests calls accept for n requests, in another goroutine than the one
// that reads events, and waits until the n connections have ended. An error in
// either goroutine ends both.
func (b *bench) acceptRequests(ctx context.Context, n int, next func(context.Context) (*cm.Event, error),
	accept func(*conn) error) error {
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
	err := b.readEvents(ctx, n, next, requests)
	close(requests)
	if failed := <-accepted; failed != nil {
		return failed // the cause of err
	}
	return err
}

// readEvents reads events until n connections have ended, and passes the requests
// on.
func (b *bench) readEvents(ctx context.Context, n int, next func(context.Context) (*cm.Event, error),
	requests chan<- *conn) error {
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
				return fmt.Errorf("the client connects more than %d ids: use the same -c at both ends", n)
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

// accept accepts a request.
func (b *bench) accept(c *conn) error {
	if err := b.makeQP(c); err != nil {
		return err
	}
	if err := c.modify(uverbs.StateInit, uverbs.StateRTR, uverbs.StateRTS); err != nil {
		return err
	}
	return c.id.Accept(c.param())
}
