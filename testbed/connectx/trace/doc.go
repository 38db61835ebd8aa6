// Package trace writes what a device does as lines of JSON that can be compared:
// commands, WQEs, doorbell records, UAR writes, CQEs, one line each.
//
// Two programs that do the same are given different keys, addresses and object
// numbers. A trace therefore has names in their place, which count by order of
// appearance: the first key is "key#1", the second queue pair "qp#2". So two
// programs that do the same have the same trace, and [Compare] finds where they
// part. The command cmd/tracediff does it for files.
//
// A nil *Tracer is one that is off: its methods do nothing and allocate nothing.
package trace
