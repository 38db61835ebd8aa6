package mlx5_test

import (
	"fmt"
	"log"

	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// A program with several QPs distributes them to the ports of a link aggregation. Without it, the kernel assigns a port
// to each QP.
func ExampleModifyLAGPort() {
	dev, err := uverbs.Open("")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	attr, err := mlx5.QueryDevice(dev)
	if err != nil {
		log.Fatal(err)
	}
	if attr.LAGPorts == 0 {
		log.Fatal("the ports of the adapter are not aggregated")
	}
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	for i := range 4 {
		qp := loopQP(pd) // a connected QP
		if err := mlx5.ModifyLAGPort(qp, i%attr.LAGPorts+1); err != nil {
			log.Fatal(err)
		}
		port, active, err := mlx5.QueryLAGPort(qp)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("port %d, active %d\n", port, active)
	}
	// Output:
	// port 1, active 1
	// port 2, active 2
	// port 1, active 1
	// port 2, active 2
}
