// Rproxy forwards connections between rsockets and TCP, so that either end of a connection over RDMA may be a program
// that only knows TCP. It listens at the first address and connects to the second for each client:
//
//	rproxy rsocket::5432 tcp:127.0.0.1:5432          # beside a server: clients come by RDMA
//	rproxy tcp:127.0.0.1:5432 rsocket:server:5432    # beside a client: the server is reached by RDMA
//
// An address is rsocket:HOST:PORT or tcp:HOST:PORT, with a 4 or 6 after the network for one family only. The peers on
// rsockets may be C programs: docs/rsocket-peers.md lists them.
//
// The end of each direction is passed on, and so is a reset. If the second address cannot be reached, the client's
// connection is reset. SIGINT and SIGTERM end the program: it accepts no more connections, and resets those that have
// not ended within the time of --grace.
package main

import "github.com/goverbs/goverbs/cmd/internal/rproxy"

func main() { rproxy.Main() }
