package guide

import (
	"bytes"
	"context"
	"errors"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

// Serve replies to requests until ctx ends.
func Serve(ctx context.Context, l *rdma.Listener) error {
	return l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		return c.ServeCalls(ctx, bytes.ToUpper)
	})
}

// Ask sends a request to the service at addr and returns the reply.
func Ask(ctx context.Context, addr, request string) (reply string, err error) {
	c, err := rdma.Dial(ctx, addr, nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := c.Call(ctx, []byte(request))
	if err != nil {
		return "", err
	}
	return string(m.Copy()), nil
}
