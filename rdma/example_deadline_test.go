package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"
)

// Each call that waits has a context. Its end ends the call, not the connection. The server may have got the message.
func ExampleConn_Call_deadline() {
	ctx := context.Background()
	client, server := exampleConn()
	defer closeBoth(client, server)

	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err := client.Call(short, []byte("hello"))
	fmt.Println("the deadline has passed:", errors.Is(err, os.ErrDeadlineExceeded))
	fmt.Println("the connection can be used:", client.Err() == nil)

	m, err := server.Recv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("the server has: %s\n", m.Bytes())
	m.Release()
	// Output:
	// the deadline has passed: true
	// the connection can be used: true
	// the server has: hello
}
