package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"

	_ "github.com/goverbs/goverbs/provider/all" // the code for each vendor's devices
	"github.com/goverbs/goverbs/rdma"
)

// serve replies to requests until ctx ends.
func serve(ctx context.Context, l *rdma.Listener) error {
	return l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		return c.ServeCalls(ctx, bytes.ToUpper)
	})
}

// ask sends a request to the service at addr and returns the reply.
func ask(ctx context.Context, addr, request string) (reply string, err error) {
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

// A service replies to the calls of its clients. The two sides are usually on two machines.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	l, err := rdma.Listen(":7471", nil)
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, l) }()

	reply, err := ask(ctx, "192.0.2.1:7471", "hello")
	fmt.Println(reply, err)

	stop()
	fmt.Println("the service has ended:", <-served)
	// Output:
	// HELLO <nil>
	// the service has ended: <nil>
}
