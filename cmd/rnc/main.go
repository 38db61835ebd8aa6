// Rnc is a netcat over RDMA: it connects standard input and output with a peer, over an rsocket. The peer may be a C
// program that runs with librspreload, such as nc. The options are those of OpenBSD's nc.
//
// Copy a file, receiver first:
//
//	rnc -l 7471 >copy
//	rnc -N server-host 7471 <file
//
// Unlike nc, rnc reports an error, and exits with a non-zero status, if the peer may not have received everything, or
// has ended without closing the connection.
package main

import "github.com/goverbs/goverbs/cmd/internal/rnc"

func main() { rnc.Main() }
