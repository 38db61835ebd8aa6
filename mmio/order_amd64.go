//go:build !race

package mmio

import (
	"math/bits"
	"sync/atomic"
)

// These functions access ordinary memory. amd64 keeps loads of it in order, and
// stores to it after all earlier loads and stores, so no fence is needed. A test
// checks that the compiler keeps the plain stores in place.

// Acquire64 loads the word of an entry that the device stores last. Later loads
// see the rest of the entry.
func Acquire64(p *uint64) uint64 { return atomic.LoadUint64(p) }

// Release32 stores v after all earlier loads and stores, as seen by other CPUs.
func Release32(p *uint32, v uint32) { *p = v }

// Publish32BE stores v, big-endian, after all earlier loads and stores, as seen
// by the device. It is for a doorbell record that no register write follows.
func Publish32BE(p *uint32, v uint32) { *p = bits.ReverseBytes32(v) }
