package rdma_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
)

// silent has a logger that discards what it is told.
var silent = &rdma.Options{Logger: slog.New(slog.DiscardHandler)}

// echo replies to calls on the pair's server until the result is called.
func (p *pair) echo(t testing.TB, o *rdma.Options) (l *rdma.Listener, stop func()) {
	t.Helper()
	l = p.listen(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	p.onServer(func() {
		go func() {
			served <- l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
				return c.ServeCalls(ctx, func(b []byte) []byte { return b })
			})
		}()
	})
	return l, func() {
		cancel()
		check(t, <-served)
	}
}

// call calls with a connection of a client.
func call(ctx context.Context, c *rdma.Conn, _ int64) error {
	m, err := c.Call(ctx, []byte("x"))
	m.Release()
	return err
}

// TestClient checks that many goroutines share a client's connections, that it connects again when they end, and what
// Do and Retry do when one ends in the function.
func TestClient(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	l, stop := p.echo(t, silent)
	defer stop()
	var setups atomic.Int64
	var cl *rdma.Client[int64]
	p.onClient(func() {
		cl = rdma.NewClient(p.addr(l), &rdma.ClientOptions[int64]{Conns: 3,
			Setup: func(context.Context, *rdma.Conn) (int64, error) { return setups.Add(1), nil }})
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				if err := cl.Do(ctx, call); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := setups.Load(); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
		end := func(ctx context.Context, c *rdma.Conn) error { // as if the peer had
			check(t, c.CM().ID().ID.Disconnect())
			_, err := c.Recv(ctx)
			return err
		}
		times := 0
		err := cl.Do(ctx, func(ctx context.Context, c *rdma.Conn, _ int64) error {
			times++
			return end(ctx, c)
		})
		isError(t, err, rdma.ErrDisconnected)
		check(t, cl.Retry(ctx, func(ctx context.Context, c *rdma.Conn, n int64) error {
			if times++; times < 4 {
				return end(ctx, c)
			}
			return call(ctx, c, n)
		}))
		if times != 4 {
			t.Errorf("the functions were called %d times, want 4", times)
		}
		for range 6 {
			check(t, cl.Do(ctx, call))
		}
		if n := setups.Load(); n != 6 {
			t.Errorf("%d connections, want 6", n)
		}
		own := errors.New("own error")
		isError(t, cl.Retry(ctx, func(context.Context, *rdma.Conn, int64) error { return own }), own)
		check(t, cl.Close())
		isError(t, cl.Do(ctx, call), net.ErrClosed)
		check(t, cl.Close())
	})
}

// TestClientWithoutServer checks that calls of a client wait for a server until their contexts end, that Close ends
// them, and that they succeed when there is one.
func TestClientWithoutServer(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	l, stop := p.echo(t, silent)
	addr := p.addr(l)
	stop()
	p.onClient(func() {
		cl := rdma.NewClient(addr, &rdma.ClientOptions[int64]{MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
		for d := 20 * time.Millisecond; ; d *= 2 { // until there was time for an attempt
			short, cancel := context.WithTimeout(ctx, d)
			err := cl.Do(short, call)
			cancel()
			isError(t, err, context.DeadlineExceeded)
			if errors.Is(err, cm.ErrRejected) {
				break
			}
			if d > 10*time.Second {
				t.Fatalf("the error is %v, and does not say that nobody listens", err)
			}
		}
		waiting := make(chan error, 3)
		for range 3 {
			go func() { waiting <- cl.Do(ctx, call) }()
		}
		again := p.listenAt(t, addr)
		for range 3 {
			check(t, <-waiting)
		}
		again()
		check(t, cl.Close())
		other := rdma.NewClient(addr, &rdma.ClientOptions[int64]{})
		for range 3 {
			go func() { waiting <- other.Do(ctx, call) }()
		}
		check(t, other.Close())
		for range 3 {
			isError(t, <-waiting, net.ErrClosed)
		}
	})
}

// listenAt is echo at the address of a server that has ended.
func (p *pair) listenAt(t testing.TB, addr string) (stop func()) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	p.onServer(func() {
		l := must(rdma.Listen(":"+port, listening(silent)))(t)
		go func() {
			served <- l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
				return c.ServeCalls(ctx, func(b []byte) []byte { return b })
			})
		}()
	})
	return func() {
		cancel()
		check(t, <-served)
	}
}

// TestClientSetup checks that an error of Setup is returned, unless the connection has ended.
func TestClientSetup(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	l, stop := p.echo(t, silent)
	defer stop()
	p.onClient(func() {
		own := errors.New("own error")
		cl := rdma.NewClient(p.addr(l), &rdma.ClientOptions[int64]{
			Setup: func(context.Context, *rdma.Conn) (int64, error) { return 0, own }})
		isError(t, cl.Do(ctx, call), own)
		check(t, cl.Close())
		times := 0
		cl = rdma.NewClient(p.addr(l), &rdma.ClientOptions[int64]{MinBackoff: time.Millisecond,
			Setup: func(ctx context.Context, c *rdma.Conn) (int64, error) {
				if times++; times < 3 {
					check(t, c.CM().ID().ID.Disconnect())
				}
				return 0, call(ctx, c, 0)
			}})
		check(t, cl.Do(ctx, call))
		if times != 3 {
			t.Errorf("Setup was called %d times, want 3", times)
		}
		check(t, cl.Close())
	})
}
