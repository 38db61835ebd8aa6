package rdma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/internal/ctxerr"
)

// This file has the end of a server that lets the calls in progress finish.

// Shutdown closes the listener, and ends the connections of [Listener.Serve] without breaking off what has begun:
// handlers that run may finish, and their replies are delivered. Calls whose handlers have not begun return a
// [*CallError] with [CodeUnavailable], of which a [Client] knows that they may be made again on another connection.
// [Conn.Handle], [Conn.ServeCalls] and [Conn.ServeCallsContext] return nil, and [Conn.Recv] [ErrShutdown], so that
// other functions of Serve return, too. Then the connections are closed as by [Conn.Close].
//
// When ctx ends first, Shutdown closes the connections that are left, which ends the contexts of their handlers. It
// does not wait for these handlers; Serve does. It returns an error then that matches context.Cause(ctx), and otherwise
// that of [Listener.Close]. Connections that the program has accepted by Accept are not ended.
func (l *Listener) Shutdown(ctx context.Context) error {
	err := l.Close()
	conns := l.served.all()
	for c := range conns {
		c.drain()
	}
	for c, closed := range conns {
		select {
		case <-closed:
			delete(conns, c)
		case <-ctx.Done():
		}
	}
	if len(conns) > 0 {
		err = errors.Join(err, l.closeLeft(ctx, slices.Collect(maps.Keys(conns))))
	}
	return err
}

// closeLeft closes connections whose handlers have not returned in time.
func (l *Listener) closeLeft(ctx context.Context, conns []*Conn) error {
	errs := make([]error, len(conns)+1)
	errs[0] = &Error{Op: "shut down the listener at", Local: l.Addr(), Err: fmt.Errorf("%w: %s had handlers in progress",
		ctxerr.Of(ctx), plural(len(conns), "connection", "connections"))}
	var closing sync.WaitGroup
	for i, c := range conns {
		closing.Go(func() { errs[i+1] = c.Shutdown(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// refuseAll refuses the calls that have arrived, if the connection is drained.
func (c *Conn) refuseAll(ctx context.Context) error {
	for {
		c.mu.Lock()
		m, ok := Message{}, false
		if c.draining {
			c.look()
			m, ok = c.takeRefused()
		}
		c.unlock()
		if !ok {
			return nil
		}
		if err := m.ReplyError(ctx, errUnavailable); err != nil {
			return err
		}
	}
}
