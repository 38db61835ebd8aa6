package uverbs

import "math/bits"

// The library runs only on little-endian machines, so swapping the bytes of a big-endian field
// yields its value.
func be64(v uint64) uint64 { return bits.ReverseBytes64(v) }
