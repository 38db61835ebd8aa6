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
// does not wait for these handlers; Serve does. If handlers were in progress, it returns an error that matches
// context.Cause(ctx), and otherwise that of [Listener.Close]. Without a deadline of ctx, it waits as long as handlers
// run, and for two minutes if a peer accepts no replies: [ErrReplyTimeout]. Connections that the program has accepted
// by Accept are not ended.
func (l *Listener) Shutdown(ctx context.Context) error {
	err := l.Close()
	conns := l.served.all(ctx)
	for c := range conns {
		c.drain()
	}
	for c, closed := range conns {
		select {
		case <-closed:
		case <-ctx.Done():
		}
		select { // also if ctx had ended, too
		case <-closed:
			delete(conns, c)
		default:
		}
	}
	if len(conns) > 0 {
		err = errors.Join(err, l.closeLeft(ctx, slices.Collect(maps.Keys(conns))))
	}
	return err
}

// closeLeft closes connections whose functions of Serve have not returned in time.
func (l *Listener) closeLeft(ctx context.Context, conns []*Conn) error {
	busy := 0
	errs := make([]error, len(conns)+1)
	var closing sync.WaitGroup
	for i, c := range conns {
		inProgress := c.inProgress()
		if inProgress {
			busy++
		}
		closing.Go(func() {
			flushed, err := c.shutdown(ctx, nil)
			if !inProgress && !errors.Is(flushed, ErrUndelivered) {
				flushed = nil // as in Close
			}
			errs[i+1] = errors.Join(flushed, err)
		})
	}
	closing.Wait()
	if busy > 0 {
		errs[0] = &Error{Op: "shut down the listener at", Local: l.Addr(), Err: fmt.Errorf("%w: %s had handlers in progress",
			ctxerr.Of(ctx), plural(busy, "connection", "connections"))}
	}
	return errors.Join(errs...)
}

// inProgress reports whether a handler of Handle runs, or a program that receives without Handle may be at work.
func (c *Conn) inProgress() bool {
	c.mu.Lock()
	defer c.unlock()
	return !c.closing && (!c.used || c.handlers > 0)
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
