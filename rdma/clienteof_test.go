package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// TestClientEOF has a server that closes connections before it has sent the token, as one that is being stopped does,
// and before it has sent a message. The client connects again.
func TestClientEOF(t *testing.T) {
	t.Parallel()
	p := machines(t)
	ctx, stop := context.WithCancel(limit(t))
	defer stop()
	l := p.listen(t, nil)
	r := rdma.NewRegion(16)
	var accepted atomic.Int32
	served := make(chan error, 1)
	p.onServer(func() {
		go func() {
			served <- l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
				n := accepted.Add(1)
				if n <= 2 {
					return nil
				}
				if _, err := c.SendToken(ctx, r, rdma.CanRead); err != nil || n <= 4 {
					return err
				}
				if err := c.Send(ctx, []byte("welcome")); err != nil {
					return err
				}
				return c.ServeCalls(ctx, func([]byte) []byte { return nil }) // until the client closes
			})
		}()
	})
	p.onClient(func() {
		cl := rdma.NewClient(p.addr(l), &rdma.ClientOptions[rdma.Token]{Setup: rdma.RecvToken})
		check(t, cl.Retry(ctx, func(ctx context.Context, c *rdma.Conn, token rdma.Token) error {
			m, err := c.Recv(ctx)
			if err == nil && string(m.Copy()) != "welcome" {
				t.Error("another message")
			}
			return err
		}))
		check(t, cl.Close())
	})
	if n := accepted.Load(); n != 5 {
		t.Errorf("%d connections, want 5", n)
	}
	stop()
	check(t, <-served)
	check(t, r.Close())
}

// TestClientBackoff has a server that ends each connection at once. Retry and Do wait between their attempts.
func TestClientBackoff(t *testing.T) {
	t.Parallel()
	p := machines(t)
	ctx, stop := context.WithCancel(limit(t))
	defer stop()
	l := p.listen(t, nil)
	var accepted atomic.Int32
	served := make(chan error, 1)
	p.onServer(func() {
		go func() {
			served <- l.Serve(ctx, func(context.Context, *rdma.Conn) error { accepted.Add(1); return nil })
		}()
	})
	f := func(ctx context.Context, c *rdma.Conn, _ struct{}) error {
		m, err := c.Call(ctx, []byte("x"))
		m.Release()
		return err
	}
	p.onClient(func() {
		for name, call := range map[string]func(context.Context, *rdma.Client[struct{}]) error{
			"Retry": func(ctx context.Context, cl *rdma.Client[struct{}]) error { return cl.Retry(ctx, f) },
			"Do": func(ctx context.Context, cl *rdma.Client[struct{}]) (err error) {
				for ctx.Err() == nil {
					err = cl.Do(ctx, f)
				}
				return errors.Join(err, context.Cause(ctx)) // f may have returned the last error
			},
		} {
			const wait = 200 * time.Millisecond
			cl := rdma.NewClient(p.addr(l), &rdma.ClientOptions[struct{}]{MinBackoff: wait, MaxBackoff: wait})
			before, start := accepted.Load(), time.Now()
			short, cancel := context.WithTimeout(ctx, time.Second)
			err := call(short, cl)
			cancel()
			isError(t, err, context.DeadlineExceeded)
			if most := int32(time.Since(start)/(wait/2)) + 1; accepted.Load()-before > most {
				t.Errorf("%s: %d connections in %v, more than %d", name, accepted.Load()-before, time.Since(start), most)
			}
			check(t, cl.Close())
		}
	})
	stop()
	check(t, <-served)
}

// TestClientErrorOfOther has f return the error of another connection. Retry returns it.
func TestClientErrorOfOther(t *testing.T) {
	p := machines(t)
	l, stop := p.echo(t, silent)
	defer stop()
	p.onClient(func() {
		cl := rdma.NewClient(p.addr(l), &rdma.ClientOptions[struct{}]{})
		for _, other := range []error{rdma.ErrDisconnected, io.EOF} {
			n := 0
			err := cl.Retry(limit(t), func(context.Context, *rdma.Conn, struct{}) error {
				n++
				return fmt.Errorf("upstream: %w", other)
			})
			isError(t, err, other)
			if n != 1 {
				t.Errorf("%d calls of f", n)
			}
		}
		check(t, cl.Close())
	})
}
