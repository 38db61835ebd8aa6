package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/goverbs/goverbs/rdma"
)

// A listener limits what its clients use, in all and per address. It has limits without options too.
func ExampleListen_limits() {
	ctx := context.Background()
	l, err := rdma.Listen(":7471", &rdma.ListenOptions{
		Options:         rdma.Options{MaxMessage: 1 << 20},
		MaxConns:        1000,
		MaxConnsPerPeer: 1,
		MaxMemory:       1 << 30, // registered for all connections, in bytes
		Refused:         func(peer netip.AddrPort, err error) { fmt.Println("refused", peer.Addr()) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	c, err := rdma.Dial(ctx, "192.0.2.1:7471", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = rdma.Dial(ctx, "192.0.2.1:7471", nil)
	fmt.Println("a limit is reached:", errors.Is(err, rdma.ErrServerLimit))
	err = c.Send(ctx, make([]byte, 2<<20))
	fmt.Println("the message is too long:", errors.Is(err, rdma.ErrTooLong))
	// Output:
	// refused 192.0.2.1
	// a limit is reached: true
	// the message is too long: true
}
