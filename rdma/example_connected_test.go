package rdma_test

import (
	"context"
	"errors"
	"io"
	"log"

	"github.com/goverbs/goverbs/rdma"
)

// exampleConn returns the two sides of a connection.
func exampleConn() (client, server *rdma.Conn) {
	ctx := context.Background()
	l, err := rdma.Listen(":7471", nil)
	if err != nil {
		log.Fatal(err)
	}
	if client, err = rdma.Dial(ctx, "192.0.2.1:7471", nil); err != nil {
		log.Fatal(err)
	}
	if server, err = l.Accept(ctx); err != nil {
		log.Fatal(err)
	}
	if err = l.Close(); err != nil {
		log.Fatal(err)
	}
	return client, server
}

// closeBoth closes the client's side of a connection, and the server's when it has received everything.
func closeBoth(client, server *rdma.Conn) {
	closed := make(chan error, 1)
	go func() { closed <- client.Close() }()
	for {
		m, err := server.Recv(context.Background())
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		m.Release()
	}
	if err := errors.Join(<-closed, server.Close()); err != nil {
		log.Fatal(err)
	}
}
