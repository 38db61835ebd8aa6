// Network gives a network interface an address and a soft-RoCE device rxe0, in guests without iproute2.
//
//	network eth0 10.8.0.2/24
package main

import (
	"errors"
	"log"
	"net/netip"
	"os"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: network INTERFACE ADDRESS/BITS")
	}
	addr, err := netip.ParsePrefix(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(rtnetlink.AddAddress(os.Args[1], addr),
		nldev.AddLink("rxe0", "rxe", os.Args[1])); err != nil {
		log.Fatal(err)
	}
}
