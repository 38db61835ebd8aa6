package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// shareTable lets clients read the table until stop is called.
func shareTable(table *rdma.Region) (stop func() error) {
	l, err := rdma.Listen(":7471", nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
			if _, err := c.SendToken(ctx, table, rdma.CanRead); err != nil {
				return err
			}
			return c.ServeCalls(ctx, func([]byte) []byte { return nil }) // until the client closes the connection
		})
	}()
	return func() error { cancel(); return <-served }
}

// A client connects when it is used, and connects again when its connection has ended. Setup receives the token of each
// connection. Retry repeats the function if the connection ends in it; Do does not.
func ExampleClient() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	table := rdma.RegionOf([]byte("hello"))
	cl := rdma.NewClient("192.0.2.1:7471", &rdma.ClientOptions[rdma.Token]{Setup: rdma.RecvToken})
	defer cl.Close()

	for range 2 { // the server is restarted
		stop := shareTable(table)
		entry := make([]byte, 5)
		err := cl.Retry(ctx, func(ctx context.Context, c *rdma.Conn, token rdma.Token) error {
			return c.Read(ctx, entry, token, 0)
		})
		fmt.Printf("%s %v\n", entry, err)
		if err := stop(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// hello <nil>
	// hello <nil>
}

// Spread reads a long table in parts, over all rails of a client. Here the client has one.
func ExampleClient_Spread() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	table := rdma.RegionOf(bytes.Repeat([]byte("hello "), 500_000))
	stop := shareTable(table)
	cl := rdma.NewClient("192.0.2.1:7471", &rdma.ClientOptions[rdma.Token]{Setup: rdma.RecvToken})

	read := make([]byte, len(table.Bytes()))
	err := cl.Spread(ctx, len(read), func(ctx context.Context, c *rdma.Conn, from rdma.Token, off, n int) error {
		return c.Read(ctx, read[off:off+n], from, off)
	})
	fmt.Println(bytes.Equal(read, table.Bytes()), err)
	for _, r := range cl.Rails() {
		fmt.Printf("%s: %d parts, %d bytes\n", r.Addr, r.Calls, r.SpreadBytes)
	}
	if err := errors.Join(cl.Close(), stop()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// true <nil>
	// 192.0.2.1:7471: 3 parts, 3000000 bytes
}
