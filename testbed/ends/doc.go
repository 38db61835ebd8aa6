// Package ends has tests that are compiled against the public API alone: in each package, each end matches the errors
// that the table of docs/levels.md lists, and no others; and package rdma talks to peers that send the bytes of
// version 1 of its protocol.
package ends
