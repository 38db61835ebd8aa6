package guide

import (
	"context"

	"github.com/goverbs/goverbs/rdma"
)

// ShareTable lets each client read the table until ctx ends.
func ShareTable(ctx context.Context, l *rdma.Listener, table *rdma.Region) error {
	return l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		if _, err := c.SendToken(ctx, table, rdma.CanRead); err != nil {
			return err
		}
		return c.ServeCalls(ctx, func([]byte) []byte { return nil }) // until the client closes the connection
	})
}

// NewReader returns a client that has a token for each of its connections.
func NewReader(addr string) *rdma.Client[rdma.Token] {
	return rdma.NewClient(addr, &rdma.ClientOptions[rdma.Token]{Conns: 2, Setup: rdma.RecvToken})
}

// ReadEntry reads an entry of the table. It tries again if the connection ends, since reading twice does no harm.
func ReadEntry(ctx context.Context, cl *rdma.Client[rdma.Token], i int) (entry [64]byte, err error) {
	err = cl.Retry(ctx, func(ctx context.Context, c *rdma.Conn, table rdma.Token) error {
		return c.Read(ctx, entry[:], table, i*len(entry))
	})
	return entry, err
}
