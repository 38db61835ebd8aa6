package rsocket_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// A listener limits what its clients use, in all and per address. It has limits without options too.
func ExampleListenConfig_Listen_limits() {
	config := rsocket.ListenConfig{
		Config:          rsocket.Config{IdleTimeout: time.Minute},
		MaxConns:        1000,
		MaxConnsPerPeer: 1,
		MaxMemory:       1 << 30, // registered for all connections, in bytes
		Refused:         func(peer netip.AddrPort, err error) { fmt.Println("refused", peer.Addr()) },
	}
	l, err := config.Listen(context.Background(), "tcp", ":7471")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	c, err := rsocket.Dial("tcp", "192.0.2.1:7471")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = rsocket.Dial("tcp", "192.0.2.1:7471")
	fmt.Println("a limit is reached:", errors.Is(err, rsocket.ErrServerLimit))
	// Output:
	// refused 192.0.2.1
	// a limit is reached: true
}
