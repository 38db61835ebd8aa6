package perftest

import (
	"sync/atomic"
	"unsafe"
)

// loadByte loads b[i], which a peer writes. b must be aligned to 4 bytes. The CPU is
// little-endian.
func loadByte(b []byte, i int) byte {
	word := (*uint32)(unsafe.Pointer(&b[i&^3]))
	return byte(atomic.LoadUint32(word) >> (8 * (i & 3)))
}
