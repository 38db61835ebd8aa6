// Package faults tests the library with faults: networks that lose, reorder,
// duplicate and delay packets, cables that are disconnected, peers that are
// killed or stopped, queues that overrun, limits that are reached.
//
// Two guests are connected by a network. Command peer runs in both and counts
// every message. The C programs run with the same faults.
//
//	go test -C testbed -tags vm ./faults
package faults
