package uverbs

import "math/bits"

// The library runs on little-endian machines alone, so a
// big-endian field read as it lies in memory is its value byte-swapped.
func be64(v uint64) uint64 { return bits.ReverseBytes64(v) }
