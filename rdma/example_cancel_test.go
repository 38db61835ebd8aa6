package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"
)

// A handler that takes long ends when its caller does not wait any more. The connection can be used further.
func ExampleConn_ServeCallsContext() {
	client, server := exampleConn() // the two sides of a connection
	started, served := make(chan struct{}), make(chan error, 1)
	handle := func(ctx context.Context, request []byte) []byte {
		if string(request) == "hello" {
			return []byte("hello to you")
		}
		close(started)
		<-ctx.Done() // in place of work
		return nil
	}
	go func() { served <- server.ServeCallsContext(context.Background(), handle) }()

	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-started
		cancel()
	}()
	_, err := client.Call(ctx, []byte("search everything"))
	fmt.Println("the call was canceled:", errors.Is(err, context.Canceled))

	reply, err := client.Call(context.Background(), []byte("hello"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", reply.Copy())
	fmt.Println(client.Close(), <-served, server.Close())
	// Output:
	// the call was canceled: true
	// hello to you
	// <nil> <nil> <nil>
}
