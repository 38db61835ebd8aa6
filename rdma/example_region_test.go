package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/rdma"
)

// The server shares memory and sends the token. From then on the client reads the memory, and the server's program does
// nothing.
func ExampleConn_Read() {
	ctx := context.Background()
	client, server := exampleConn() // the two sides of a connection
	defer closeBoth(client, server)

	table := rdma.NewRegion(4096)
	copy(table.Bytes(), "first entry\nsecond entry\n")
	share, err := server.SendToken(ctx, table, rdma.CanRead)
	if err != nil {
		log.Fatal(err)
	}

	token, err := rdma.RecvToken(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	entry := make([]byte, 12)
	if err := client.Read(ctx, entry, token, 12); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", entry)
	err = client.Write(ctx, entry, token, 0)
	fmt.Println("the client may write:", !errors.Is(err, rdma.ErrRights))

	fmt.Println(share.Revoke()) // the client cannot access the memory any more
	// Output:
	// second entry
	// the client may write: false
	// <nil>
}

// WriteImm writes to the peer's memory and sends a message without bytes, which says where.
func ExampleConn_WriteImm() {
	ctx := context.Background()
	client, server := exampleConn() // the two sides of a connection
	defer closeBoth(client, server)
	const slot = 256
	inbox := rdma.NewRegion(8 * slot)
	if _, err := server.SendToken(ctx, inbox, rdma.CanWrite); err != nil {
		log.Fatal(err)
	}

	token, err := rdma.RecvToken(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	if err := client.WriteImm(ctx, []byte("for slot 3"), token, 3*slot, 3); err != nil {
		log.Fatal(err)
	}

	m, err := server.Recv(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if n, ok := m.Imm(); ok {
		fmt.Printf("slot %d: %s\n", n, inbox.Bytes()[n*slot:][:m.Len()])
	}
	m.Release()
	// Output: slot 3: for slot 3
}

// Any number of clients draw numbers from a counter in the server's memory.
func ExampleConn_FetchAdd() {
	ctx := context.Background()
	client, server := exampleConn() // the two sides of a connection
	defer closeBoth(client, server)
	counter := rdma.NewRegion(8)
	if _, err := server.SendToken(ctx, counter, rdma.CanAtomic); err != nil {
		log.Fatal(err)
	}

	token, err := rdma.RecvToken(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		number, err := client.FetchAdd(ctx, token, 0, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(number)
	}
	// Output:
	// 0
	// 1
	// 2
}

// A lock is a word in the server's memory: 0, or the number of its owner.
func ExampleConn_CompareAndSwap() {
	ctx := context.Background()
	client, server := exampleConn() // the two sides of a connection
	defer closeBoth(client, server)
	lock := rdma.NewRegion(8)
	if _, err := server.SendToken(ctx, lock, rdma.CanAtomic); err != nil {
		log.Fatal(err)
	}

	token, err := rdma.RecvToken(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	for _, owner := range []uint64{7, 8} {
		was, err := client.CompareAndSwap(ctx, token, 0, 0, owner)
		if err != nil {
			log.Fatal(err)
		}
		if was == 0 {
			fmt.Println(owner, "has the lock")
		} else {
			fmt.Println(owner, "waits for", was)
		}
	}
	// Output:
	// 7 has the lock
	// 8 waits for 7
}
