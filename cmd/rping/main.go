// Rping lets a server read a text from a client's memory and write it back repeatedly, by RDMA READ and WRITE over an
// rdma_cm connection. It has the protocol, options and output of rdma-core's rping, so either end can be the C program.
//
// Server, then client:
//
//	rping -s -v
//	rping -c -v -C 10 -a server-host
//
// Each ping consists of four messages of 16 bytes. The client sends the address of the text; the server READs the text
// and replies. The client sends the address of another buffer; the server WRITEs the text there and replies.
//
// Unlike the C program it also checks the text on the server (with -V), ends
// cleanly on SIGINT, and exits with a non-zero status if a ping fails.
package main

import "github.com/goverbs/goverbs/cmd/internal/rping"

func main() { rping.Main() }
