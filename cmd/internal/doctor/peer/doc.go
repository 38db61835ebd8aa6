// Package peer has the part of doctor that needs two machines: one listens, the other connects to it, moves
// checked data with each operation, and measures latency and bandwidth.
//
// The two ends first exchange a [hello] through a TCP connection, each a line of JSON. It has what findings about
// both ends need, and the addresses of QPs for datagrams. Then the client connects with package rdma, to the same
// address and port.
package peer

import "hash/crc32"

// Port is the port, of TCP and of rdma_cm, that doctor listens at.
const Port = 7473

// regionSize is the length of the memory that the listening end shares. The last 8 bytes are for atomics.
const regionSize = 1 << 20

// pattern fills b with bytes that depend on their position and on seed.
func pattern(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)*31 ^ seed
	}
}

// sum returns the checksum of memory that a peer has written.
func sum(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// The seeds of what the listening end offers for READs, and of what the other end sends and writes.
const (
	seedOffered byte = 0x5a
	seedWritten byte = 0xa7
)
