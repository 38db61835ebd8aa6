package main

import (
	"context"
	"errors"
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

func (b *bench) acceptAll(ctx context.Context, n int) error {
	requests := make(chan *conn, n)
	accepted := make(chan error, 1)
	go func() { accepted <- b.accept(requests) }()
	for ended := 0; ended < n; {
		e, err := b.ch.Next(ctx)
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
			requests <- c
			if len(b.conns) == n {
				close(requests)
			}
		case cm.EventDisconnected:
			ended++
			if err := e.ID.Disconnect(); err != nil {
				return err
			}
		}
	}
	return errors.Join(<-accepted, b.destroy())
}

// accept works beside the events.
func (b *bench) accept(requests <-chan *conn) error {
	for c := range requests {
		if err := b.makeQP(c); err != nil {
			return err
		}
		if err := c.modify(uverbs.StateInit, uverbs.StateRTR, uverbs.StateRTS); err != nil {
			return err
		}
		if err := c.id.Accept(c.param()); err != nil {
			return err
		}
	}
	return nil
}
