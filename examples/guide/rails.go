package guide

import (
	"context"

	"github.com/goverbs/goverbs/rdma"
)

// NewRailsReader returns a client of a server that has an address for each of its two adapters. The routing table of
// this host leads to each over another adapter.
func NewRailsReader(first, second string) *rdma.Client[rdma.Token] {
	return rdma.NewClient(first, &rdma.ClientOptions[rdma.Token]{
		Rails: []rdma.Rail{{Addr: second}},
		Setup: rdma.RecvToken,
	})
}

// ReadTable reads the table over both.
func ReadTable(ctx context.Context, cl *rdma.Client[rdma.Token], table []byte) error {
	return cl.Spread(ctx, len(table), func(ctx context.Context, c *rdma.Conn, from rdma.Token, off, n int) error {
		return c.Read(ctx, table[off:off+n], from, off)
	})
}
