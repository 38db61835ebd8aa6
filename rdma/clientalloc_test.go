//go:build !race

package rdma_test

import (
	"context"
	"testing"

	"github.com/goverbs/goverbs/rdma"
)

// TestClientAllocatesNothing checks that a client chooses a connection without an allocation, also one of several
// rails.
func TestClientAllocatesNothing(t *testing.T) {
	r := newRailed(t, nil)
	for _, m := range r.here {
		m.SetNUMANode(0)
	}
	ctx := limit(t)
	f := func(context.Context, *rdma.Conn, int) error { return nil }
	r.onClient(func() {
		one := rdma.NewClient[int](r.rails[0].Addr, nil)
		several := r.client(t, rdma.ClientOptions[int]{Conns: 2})
		for name, cl := range map[string]*rdma.Client[int]{"one connection": one, "two rails": several} {
			until(t, "all connections", func() bool {
				check(t, cl.Do(ctx, f))
				return cl.Stats().Conns == 1+3*(len(cl.Rails())-1)
			})
			if n := testing.AllocsPerRun(1000, func() { check(t, cl.Do(ctx, f)) }); n > 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
			check(t, cl.Close())
		}
	})
}
