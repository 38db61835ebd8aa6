package rdma_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestClientCloseInSetup closes a client while Setup waits for what the server does not send.
func TestClientCloseInSetup(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	l, stop := p.echo(t, silent)
	defer stop()
	attempt := make(chan struct{}, 1)
	var cl *rdma.Client[rdma.Token]
	var done <-chan error
	p.onClient(func() {
		cl = rdma.NewClient(p.addr(l), &rdma.ClientOptions[rdma.Token]{
			Setup: func(ctx context.Context, c *rdma.Conn) (rdma.Token, error) {
				attempt <- struct{}{}
				return rdma.RecvToken(ctx, c)
			}})
		done = background(func() error {
			return cl.Do(ctx, func(context.Context, *rdma.Conn, rdma.Token) error { return nil })
		})
	})
	<-attempt
	check(t, cl.Close())
	isError(t, within(t, done, "Do"), net.ErrClosed)
}

// TestClientCloseOfMany closes a client whose server has lost power. Close waits for its connections at the same time,
// not for one after the other.
func TestClientCloseOfMany(t *testing.T) {
	t.Parallel()
	p := machines(t)
	p.allow(verbstest.Destination)
	ctx := limit(t)
	l, stop := p.echo(t, silent)
	defer stop()
	const conns = 20
	p.onClient(func() {
		o := rdma.Options{Linger: time.Second, KeepAlive: -1}
		cl := rdma.NewClient(p.addr(l), &rdma.ClientOptions[struct{}]{Conns: conns, Options: o})
		for range conns {
			check(t, cl.Do(ctx, func(context.Context, *rdma.Conn, struct{}) error { return nil }))
		}
		p.there.Kill()
		start := time.Now()
		check(t, cl.Close())
		if took := time.Since(start); took > conns*o.Linger/2 {
			t.Errorf("Close takes %v for %d connections that wait for %v", took, conns, o.Linger)
		}
	})
}
