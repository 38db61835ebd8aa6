package rdma_test

import (
	"context"
	"net"
	"testing"

	"github.com/goverbs/goverbs/rdma"
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
		cl = rdma.NewClient(p.addr(l), rdma.ClientOptions[rdma.Token]{
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
