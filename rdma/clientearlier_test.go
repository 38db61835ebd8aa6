package rdma_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// endedClient returns a client whose connection has ended with a message that the server has not received. The server
// replies on further connections.
func endedClient(t *testing.T, p *pair, o rdma.Options) *rdma.Client[struct{}] {
	t.Helper()
	ctx, stop := context.WithCancel(limit(t))
	l := p.listen(t, silent)
	end := make(chan struct{})
	var conns atomic.Int32
	served := make(chan error, 1)
	p.onServer(func() {
		go func() {
			served <- l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
				if conns.Add(1) == 1 {
					<-end
					return nil
				}
				return c.ServeCalls(ctx, func(b []byte) []byte { return b })
			})
		}()
	})
	t.Cleanup(func() {
		stop()
		check(t, within(t, served, "Serve"))
	})
	var cl *rdma.Client[struct{}]
	p.onClient(func() {
		cl = rdma.NewClient(p.addr(l), &rdma.ClientOptions[struct{}]{Options: o})
		var first *rdma.Conn
		check(t, cl.Do(ctx, func(ctx context.Context, c *rdma.Conn, _ struct{}) error {
			first = c
			return c.Send(ctx, []byte("lost"))
		}))
		close(end)
		<-first.CM().Disconnected() // no call has noticed it
	})
	t.Cleanup(func() { check(t, cl.Close()) })
	return cl
}

func callOnce(ctx context.Context, c *rdma.Conn, _ struct{}) error {
	m, err := c.Call(ctx, []byte("x"))
	m.Release()
	return err
}

// TestRetryAfterEarlierMessages checks that Retry calls its function although a message of an earlier call was lost,
// which Do returns.
func TestRetryAfterEarlierMessages(t *testing.T) {
	ctx := limit(t)
	p := machines(t)
	cl := endedClient(t, p, rdma.Options{})
	p.onClient(func() {
		isError(t, cl.Do(ctx, callOnce), rdma.ErrUndelivered)
		check(t, cl.Do(ctx, callOnce))
	})
	p = machines(t)
	cl = endedClient(t, p, rdma.Options{})
	p.onClient(func() { check(t, cl.Retry(ctx, callOnce)) })
}

// TestTraceCallsClient has a function of a Trace use the client whose connection has ended.
func TestTraceCallsClient(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	var cl atomic.Pointer[rdma.Client[struct{}]] // set when the connection has ended
	used := make(chan error, 10)
	closed, stop := context.WithCancelCause(ctx)
	reason := errors.New("not called")
	stop(reason)
	c := endedClient(t, p, rdma.Options{Trace: &rdma.Trace{Ended: func(*rdma.Conn, error) {
		if cl := cl.Load(); cl != nil {
			used <- cl.Do(closed, callOnce)
		}
	}}})
	cl.Store(c)
	p.onClient(func() {
		check(t, c.Retry(ctx, callOnce))
		check(t, within(t, background(c.Close), "Close"))
		if err := within(t, used, "Do in Ended"); err == nil {
			t.Error("Do returns nil after Close, or with a context that has ended")
		}
	})
}
