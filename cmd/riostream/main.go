// Riostream measures latency and bandwidth of writes to memory that the peer has mapped. It has the protocol, options
// and output of rdma-core's riostream, so either end can be the C program.
//
// Server, then client:
//
//	riostream
//	riostream -s server-host
//
// Each side maps memory for the other one. In each iteration the client writes a number of transfers to it, and the
// server, which polls the last byte of the last transfer, then writes as many.
//
// Unlike the C program it ends with an error if its peer does, and cleanly on SIGINT.
package main

import (
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/cmd/internal/rstream"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() { program.Main("riostream", rstream.Riostream.Run) }
