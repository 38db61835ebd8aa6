// Package perftest runs the benchmarks of linux-rdma/perftest. It has the same tests,
// options, columns and messages between the two ends as perftest, so either end can be
// the C program. docs/perftest-wire.md describes the messages.
//
// [Parse] parses a command line. [Run] runs one end of a test: the server, or the
// client if [Options].Server is set.
package perftest
