package guide

import (
	"context"

	"github.com/goverbs/goverbs/rdma"
)

// Fetch asks for a block, which it stores in the region at off. It returns the length.
func Fetch(ctx context.Context, c *rdma.Conn, name string, into *rdma.Region, off, most int) (n int, err error) {
	b, err := c.BufferOf(into, off, most)
	if err != nil {
		return 0, err
	}
	m, err := c.CallInto(ctx, []byte(name), b)
	if err != nil {
		return 0, err
	}
	m.Release() // the bytes stay
	return m.Len(), nil
}
