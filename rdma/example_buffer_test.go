package rdma_test

import (
	"context"
	"fmt"
	"log"
	"strings"
)

// A Buffer is filled in place and sent without a copy. It belongs to the connection from SendBuffer on, and is released
// when the peer has the message.
func ExampleConn_SendBuffer() {
	ctx := context.Background()
	sender, receiver := exampleConn() // the two sides of a connection
	defer closeBoth(sender, receiver)
	file := strings.NewReader("the contents of a file")

	b, err := sender.Alloc(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	n, err := file.Read(b.Bytes())
	if err == nil {
		err = b.SetLen(n)
	}
	if err == nil {
		err = sender.SendBuffer(ctx, b)
	}
	if err != nil {
		b.Release() // it still belongs to this function
		log.Fatal(err)
	}

	m, err := receiver.Recv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", m.Copy())
	// Output: the contents of a file
}

// The buffer of a message can be sent to forward the message.
func ExampleConn_SendBuffer_forward() {
	ctx := context.Background()
	client, in := exampleConn() // the two sides of a connection
	defer closeBoth(client, in)
	out, next := exampleConn() // the two sides of a connection
	defer closeBoth(out, next)

	if err := client.Send(ctx, []byte("to the next one")); err != nil {
		log.Fatal(err)
	}
	m, err := in.Recv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := out.SendBuffer(ctx, m.Buffer); err != nil {
		m.Release()
		log.Fatal(err)
	}
	if m, err = next.Recv(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", m.Copy())
	// Output: to the next one
}
