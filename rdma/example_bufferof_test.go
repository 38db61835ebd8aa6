package rdma_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/rdma"
)

// A part of the program's memory is sent to several peers without a copy. After Flush, all have it.
func ExampleConn_BufferOf() {
	ctx := context.Background()
	first, reader := exampleConn() // the two sides of a connection
	defer closeBoth(first, reader)
	second, other := exampleConn() // the two sides of a connection
	defer closeBoth(second, other)
	page := rdma.RegionOf([]byte("a page that the program has in its cache"))

	for _, c := range []*rdma.Conn{first, second} {
		b, err := c.BufferOf(page, 2, 4)
		if err != nil {
			log.Fatal(err)
		}
		if err := c.SendBuffer(ctx, b); err != nil {
			b.Release()
			log.Fatal(err)
		}
	}
	for _, c := range []*rdma.Conn{first, second} {
		if err := c.Flush(ctx); err != nil {
			log.Fatal(err)
		}
	}
	if err := page.Close(); err != nil { // no device accesses the memory any more
		log.Fatal(err)
	}

	for _, c := range []*rdma.Conn{reader, other} {
		m, err := c.Recv(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", m.Copy())
	}
	// Output:
	// page
	// page
}

// A buffer is sent in part, and as a whole.
func ExampleBuffer_Slice() {
	ctx := context.Background()
	first, reader := exampleConn() // the two sides of a connection
	defer closeBoth(first, reader)
	b, err := first.Alloc(16)
	if err != nil {
		log.Fatal(err)
	}
	copy(b.Bytes(), "head and body...")

	head, err := b.Slice(0, 4)
	if err == nil {
		err = first.SendBuffer(ctx, head)
	}
	if err == nil {
		err = first.SendBuffer(ctx, b) // the memory is used again when the peer has both
	}
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		m, err := reader.Recv(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", m.Copy())
	}
	// Output:
	// head
	// head and body...
}
