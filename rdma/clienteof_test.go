package rdma_test

import (
	"context"
	"sync/atomic"
	"testing"

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
		cl := rdma.NewClient(p.addr(l), rdma.ClientOptions[rdma.Token]{Setup: rdma.RecvToken})
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
