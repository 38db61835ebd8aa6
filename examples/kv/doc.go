// Package kv is a small replicated key-value store on RDMA. A primary sends its log to backups, each
// over a separate link, and a write is committed when a majority of the replicas has it: one of two
// backups is enough.
//
// Committed writes survive the loss of any minority of the replicas: of the others, the one with the
// longest log has them all. Reads of the primary return committed writes only. The choice of a new
// primary is left to the program.
//
// A node does nothing by itself: the program calls [Node.Step] or [Node.Wait] in a loop. This makes it
// easy to test: kv_test.go plays thousands of schedules with lost packets, broken links and dead
// replicas on package verbstest, from one goroutine each, so that a failure is replayed by its seed.
package kv
