package mmio

import "sync/atomic"

// Acquire64 loads a word that the device stores last of what belongs together:
// loads after it see the rest.
//
//go:noescape
func Acquire64(p *uint64) uint64

// Release32 stores v behind the loads and stores before it, as other CPUs see
// them.
func Release32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Publish32BE stores v, big-endian, behind the loads and stores before it, as the
// device sees them: a doorbell record that nothing but the record tells of.
//
//go:noescape
func Publish32BE(p *uint32, v uint32)
