// Package faults holds the library against what goes wrong: networks that lose,
// reorder, duplicate and delay, cables that are pulled, peers that are killed
// or stopped, queues that overrun, limits that are reached.
//
// Two guests are linked by a network; command peer talks in both, and gives an
// Account of every message. The same script runs with C's programs.
//
//	go test -tags vm ./testbed/faults
package faults
