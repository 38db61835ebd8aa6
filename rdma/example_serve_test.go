package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/goverbs/goverbs/rdma"
)

// A handler receives the messages itself if it needs more than ServeCalls. Serve calls it for each connection, which it
// closes when the handler returns. Serve returns when ctx has ended and all handlers have returned.
func ExampleListener_Serve() {
	handle := func(ctx context.Context, c *rdma.Conn) error {
		for {
			m, err := c.Recv(ctx)
			if err == io.EOF {
				return nil // the client has closed the connection
			}
			if err != nil {
				return err
			}
			if m.IsCall() {
				err = m.Reply(ctx, fmt.Appendf(nil, "%d bytes", m.Len()))
			}
			m.Release()
			if err != nil {
				return err
			}
		}
	}
	l, err := rdma.Listen(":7471", nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- l.Serve(ctx, handle) }()

	fmt.Println(ask(ctx, "192.0.2.1:7471", "hello"))
	stop()
	fmt.Println(<-served)
	_, err = l.Accept(context.Background())
	fmt.Println("the listener is closed:", errors.Is(err, net.ErrClosed))
	// Output:
	// 5 bytes <nil>
	// <nil>
	// the listener is closed: true
}
