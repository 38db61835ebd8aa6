package main

import (
	"context"
	"os"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// client connects one id as a warm-up, then count ids.
func (b *bench) client(ctx context.Context) error {
	for _, n := range []int{1, b.count} {
		b.conns = nil
		if err := b.connectAll(ctx, n); err != nil {
			return err
		}
	}
	return b.report(os.Stdout)
}

func (b *bench) connectAll(ctx context.Context, n int) error {
	start := time.Now()
	err := b.time(createID, func() error {
		for range n {
			id, err := b.ch.CreateID(cm.PSTCP)
			if err != nil {
				return err
			}
			c := &conn{id: id}
			id.Context = c
			b.conns = append(b.conns, c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if b.bind.IsValid() {
		if err := b.each(bindAddr, func(c *conn) error { return c.id.Bind(b.bind) }); err != nil {
			return err
		}
	}
	if err := b.eachWithEvent(ctx, resolveAddr, cm.EventAddrResolved, func(c *conn) error {
		return c.id.ResolveAddr(b.bind, b.options.server, 0)
	}, nil); err != nil {
		return err
	}
	if err := b.eachWithEvent(ctx, resolveRoute, cm.EventRouteResolved,
		func(c *conn) error { return c.id.ResolveRoute(0) }, nil); err != nil {
		return err
	}
	if err := b.each(createQP, b.makeQP); err != nil {
		return err
	}
	if err := b.each(initQP, func(c *conn) error { return c.modify(uverbs.StateInit) }); err != nil {
		return err
	}
	if err := b.eachWithEvent(ctx, cmConnect, cm.EventConnectResponse, func(c *conn) error {
		return c.id.Connect(c.param())
	},
		func(c *conn) error {
			if err := c.modify(uverbs.StateRTR, uverbs.StateRTS); err != nil {
				return err
			}
			return c.id.Establish()
		}); err != nil {
		return err
	}
	b.took[fullConnect] = time.Since(start)
	if err := b.each(disconnect, func(c *conn) error { return c.id.Disconnect() }); err != nil {
		return err
	}
	if err := b.events(ctx, cm.EventDisconnected, nil); err != nil {
		return err
	}
	return b.destroy(ctx)
}
