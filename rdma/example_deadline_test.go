package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Each call that waits has a context. Its end ends the call, not the connection. The server may have got the message.
func ExampleConn_Call_deadline() {
	client, server := exampleConn() // the two sides of a connection
	defer closeBoth(client, server)

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := client.Call(ctx, []byte("hello")) // the server does not reply
	fmt.Println("the deadline has passed:", errors.Is(err, os.ErrDeadlineExceeded))

	fmt.Println("the connection can be used:", client.Send(context.Background(), []byte("hello again")) == nil)
	// Output:
	// the deadline has passed: true
	// the connection can be used: true
}
