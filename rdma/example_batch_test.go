package rdma_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/rdma"
)

// A batch starts many reads and waits once: it takes about as long as one of them.
func ExampleBatch() {
	ctx := context.Background()
	client, server := exampleConn() // the two sides of a connection
	defer closeBoth(client, server)
	const size = 4096
	blocks := rdma.NewRegion(64 * size)
	for i := range 64 {
		copy(blocks.Bytes()[i*size:], fmt.Sprintf("block %d", i))
	}
	if _, err := server.SendToken(ctx, blocks, rdma.CanRead); err != nil {
		log.Fatal(err)
	}

	token, err := rdma.RecvToken(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	batch := client.NewBatch()
	bufs := map[int]rdma.Buffer{}
	for _, i := range []int{3, 60, 17} {
		b, err := client.Alloc(size)
		if err != nil {
			log.Fatal(err)
		}
		defer b.Release()
		bufs[i] = b
		batch.Read(b, token, i*size)
	}
	if err := batch.Do(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %s\n", bufs[60].Bytes()[:8], bufs[17].Bytes()[:8])
	// Output: block 60, block 17
}
