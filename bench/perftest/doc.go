// Package perftest runs RDMA benchmarks as the programs of linux-rdma/perftest
// do, and against them: the same tests, options, columns and messages between
// the two ends. docs/perftest-wire.md describes the messages.
//
// [Parse] reads a command line, [Run] plays one end: the server, or with
// [Options].Server the client.
package perftest
