package mmio

import (
	"math/bits"
	"sync/atomic"
)

// Acquire64 loads a word that the device stores last of what belongs together:
// loads after it see the rest. What the device writes lies in ordinary memory,
// whose loads this CPU does not reorder, so no fence is needed as after a load
// of a register.
func Acquire64(p *uint64) uint64 { return atomic.LoadUint64(p) }

// Release32 stores v behind the loads and stores before it, as other CPUs see
// them.
func Release32(p *uint32, v uint32) { *p = v }

// Publish32BE stores v, big-endian, behind the loads and stores before it, as the
// device sees them: a doorbell record that nothing but the record tells of.
func Publish32BE(p *uint32, v uint32) { *p = bits.ReverseBytes32(v) }
