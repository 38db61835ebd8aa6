package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"
)

// One side sends messages and closes the connection. The other receives until io.EOF: then nothing is missing. A sender
// that is faster than the receiver waits in Send.
func ExampleConn_Recv() {
	ctx := context.Background()
	sender, receiver := exampleConn() // the two sides of a connection
	sent := make(chan error, 1)
	go func() {
		for i := range 3 {
			if err := sender.Send(ctx, fmt.Appendf(nil, "message %d", i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- sender.Close()
	}()

	for {
		m, err := receiver.Recv(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", m.Bytes()) // in place
		m.Release()                   // the sender may send another one
	}
	fmt.Println(<-sent, receiver.Close())
	// Output:
	// message 0
	// message 1
	// message 2
	// <nil> <nil>
}

// Send waits while the receiver has as many messages as its Options.Depth says. If the context ends first, the message
// was not sent, and the connection can be used further.
func ExampleConn_Send() {
	ctx := context.Background()
	sender, receiver := exampleConn() // the two sides of a connection
	defer closeBoth(sender, receiver)

	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	sent := 0
	for ; sent < 100; sent++ {
		err := sender.Send(short, []byte("an event"))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			fmt.Println("the receiver is slow")
			break
		}
		if err != nil {
			log.Fatal(err)
		}
	}

	for range sent {
		m, err := receiver.Recv(ctx)
		if err != nil {
			log.Fatal(err)
		}
		m.Release()
	}
	fmt.Println(sender.Send(ctx, []byte("there is room again")))
	// Output:
	// the receiver is slow
	// <nil>
}
