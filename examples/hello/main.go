// Hello sends a message over RDMA and prints the reply. Start one without an argument,
// then another with the address of the first one's RDMA device: hello 192.0.2.1:7471.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	ctx := context.Background()
	if len(os.Args) > 1 {
		c := must(rdma.Dial(ctx, os.Args[1], nil))
		defer c.Close()
		reply := must(c.Call(ctx, []byte("hello")))
		fmt.Printf("reply: %s\n", reply.Copy())
		return
	}
	c := must(must(rdma.Listen(":7471", nil)).Accept(ctx))
	err := c.ServeCalls(ctx, func(request []byte) []byte {
		fmt.Printf("heard: %s\n", request)
		return fmt.Appendf(nil, "hello to %v from process %d", c.RemoteAddr(), os.Getpid())
	})
	must(0, errors.Join(err, c.Close()))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
