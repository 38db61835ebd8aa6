package guide

import (
	"context"

	"github.com/goverbs/goverbs/rdma"
)

// ShareCounter lets each client count in the first eight bytes of the counter until ctx ends.
func ShareCounter(ctx context.Context, l *rdma.Listener, counter *rdma.Region) error {
	return l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		if _, err := c.SendToken(ctx, counter, rdma.CanAtomic); err != nil {
			return err
		}
		return c.ServeCalls(ctx, func([]byte) []byte { return nil }) // until the client closes the connection
	})
}

// NextNumber returns a number that no other client gets.
func NextNumber(ctx context.Context, c *rdma.Conn, counter rdma.Token) (uint64, error) {
	return c.FetchAdd(ctx, counter, 0, 1)
}
