package guide

import (
	"context"
	"io"

	"github.com/goverbs/goverbs/rdma"
)

// SendAll sends what it reads from r, in messages of up to 1 MiB.
func SendAll(ctx context.Context, c *rdma.Conn, r io.Reader) error {
	for {
		b, err := c.Alloc(1 << 20)
		if err != nil {
			return err
		}
		n, readErr := r.Read(b.Bytes()) // into the memory that is sent
		if n > 0 {
			if err = b.SetLen(n); err == nil {
				err = c.SendBuffer(ctx, b) // b belongs to the connection now
			}
		}
		if n == 0 || err != nil {
			b.Release() // it still belongs to this function
		}
		if err == nil {
			err = readErr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ReceiveAll writes messages to w until the peer closes the connection.
func ReceiveAll(ctx context.Context, c *rdma.Conn, w io.Writer) error {
	for {
		m, err := c.Recv(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = w.Write(m.Bytes())
		m.Release() // the peer may send another one
		if err != nil {
			return err
		}
	}
}
