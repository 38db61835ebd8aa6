package rdma_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/rdma"
)

// Any number of goroutines may call at the same time. Each gets the reply to its call.
func ExampleConn_Call() {
	ctx := context.Background()
	client, server := exampleConn() // the two sides of a connection
	served := make(chan error, 1)
	go func() { served <- server.ServeCalls(ctx, bytes.ToUpper) }() // until the client closes the connection

	var wg sync.WaitGroup
	for _, word := range []string{"one", "two", "three"} {
		wg.Go(func() {
			reply, err := client.Call(ctx, []byte(word))
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%s: %s\n", word, reply.Bytes())
			reply.Release()
		})
	}
	wg.Wait()
	fmt.Println(client.Close(), <-served, server.Close())
	// Unordered output:
	// one: ONE
	// two: TWO
	// three: THREE
	// <nil> <nil> <nil>
}

// A call can be replied to later, in any order and by any goroutine, also after its message was released.
func ExampleMessage_Reply() {
	ctx := context.Background()
	client, server := exampleConn() // the two sides of a connection
	defer closeBoth(client, server)

	var wg sync.WaitGroup
	wg.Go(func() {
		var waiting []rdma.Message
		for len(waiting) < 2 {
			m, err := server.Recv(ctx)
			if err != nil {
				log.Fatal(err)
			}
			m.Release() // the client may send another one
			waiting = append(waiting, m)
		}
		for i, m := range slices.Backward(waiting) {
			if err := m.Reply(ctx, fmt.Appendf(nil, "you are number %d", i+1)); err != nil {
				log.Fatal(err)
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			reply, err := client.Call(ctx, []byte("may I?"))
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%s\n", reply.Copy()) // Copy releases the reply
		})
	}
	wg.Wait()
	// Unordered output:
	// you are number 1
	// you are number 2
}
