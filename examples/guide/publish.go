package guide

import (
	"context"

	"github.com/goverbs/goverbs/rdma"
)

// Publish sends the n bytes at off of data to all subscribers, and returns when all have them.
func Publish(ctx context.Context, data *rdma.Region, off, n int, subscribers []*rdma.Conn) error {
	for _, c := range subscribers {
		b, err := c.BufferOf(data, off, n)
		if err != nil {
			return err
		}
		if err := c.SendBuffer(ctx, b); err != nil {
			b.Release() // it still belongs to this function
			return err
		}
	}
	for _, c := range subscribers {
		if err := c.Flush(ctx); err != nil {
			return err
		}
	}
	return nil // data may be changed now
}
