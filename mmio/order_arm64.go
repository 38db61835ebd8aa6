//go:build !race

package mmio

import "sync/atomic"

// Acquire64 loads the word of an entry that the device stores last. Later loads
// see the rest of the entry.
//
//go:noescape
func Acquire64(p *uint64) uint64

// Release32 stores v after all earlier loads and stores, as seen by other CPUs.
func Release32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Publish32BE stores v, big-endian, after all earlier loads and stores, as seen
// by the device. It is for a doorbell record that no register write follows.
//
//go:noescape
func Publish32BE(p *uint32, v uint32)
