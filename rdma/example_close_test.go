package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/rdma"
)

// A server says why it ends a connection. The codes are the program's.
func ExampleConn_CloseWithError() {
	const tooSlow = 1
	client, server := exampleConn() // the two sides of a connection
	if err := server.CloseWithError(tooSlow, "the subscriber is too slow"); err != nil {
		log.Print(err)
	}

	_, err := client.Recv(context.Background())
	var reason *rdma.CloseError
	if errors.As(err, &reason) {
		fmt.Println(reason.Code == tooSlow, reason.Text)
	}
	fmt.Println("the connection has ended:", errors.Is(err, rdma.ErrDisconnected))
	fmt.Println(client.Close())
	// Output:
	// true the subscriber is too slow
	// the connection has ended: true
	// <nil>
}
