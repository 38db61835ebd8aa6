// Goverbs-perftest is linux-rdma/perftest in Go. It has the same tests, options,
// columns and messages between the two ends, so either end can be the C program.
//
//	goverbs-perftest send_lat                 # server
//	goverbs-perftest send_lat -n 5000 host    # client
//
// A link to it with a name such as ib_send_lat or write_bw runs that test.
package main

import (
	"github.com/goverbs/goverbs/bench/perftest"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() { perftest.Main() }
