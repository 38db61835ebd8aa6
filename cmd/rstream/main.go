// Rstream measures latency and bandwidth of rsockets. It has the protocol, options and output of rdma-core's rstream,
// so either end can be the C program.
//
// Server, then client:
//
//	rstream
//	rstream -s server-host
//
// In each iteration the client sends a number of transfers, and the server as many. Without -I, -C and -S, two series
// of tests run on a connection each, the first with one transfer at a time. With -T s, the connections are TCP's.
//
// Unlike the C program it ends with an error if its peer does, and cleanly on SIGINT. Without -T b, it polls without
// pause, as the C program does.
package main

import (
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/cmd/internal/rstream"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() { program.Main("rstream", rstream.Rstream.Run) }
