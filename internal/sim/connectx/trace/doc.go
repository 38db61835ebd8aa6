// Package trace writes the actions of a device as lines of JSON that can be
// compared: commands, WQEs, doorbell records, UAR writes and CQEs, one line
// each.
//
// Two programs that do the same get different keys, addresses and object
// numbers. A trace therefore has names instead, numbered by order of
// appearance: the first key is "key#1", the second queue pair "qp#2". So two
// programs that do the same have the same trace, and [Compare] finds the first
// difference. The command testbed/connectx/cmd/tracediff compares files:
//
//	go run -C testbed ./connectx/cmd/tracediff A B
//
// A nil *Tracer is disabled: its methods do nothing and allocate nothing.
package trace
