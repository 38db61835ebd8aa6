// Package speed compares the cost of requests, in instructions, with budgets. The
// numbers of instructions on the software ConnectX are reproducible. testbed/bench
// measures times, which are not.
package speed
