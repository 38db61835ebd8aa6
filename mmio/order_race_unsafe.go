//go:build race

package mmio

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/race"
)

// In a build with the race detector, these functions also tell the detector that they synchronize
// the program with the device.

// Acquire64 loads the word of an entry that the device stores last. Later loads
// see the rest of the entry.
func Acquire64(p *uint64) uint64 {
	v := atomic.LoadUint64(p)
	race.Acquire(unsafe.Pointer(p))
	return v
}

// Release32 stores v after all earlier loads and stores, as seen by other CPUs.
func Release32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Publish32BE stores v, big-endian, after all earlier loads and stores, as seen
// by the device. It is for a doorbell record that no register write follows.
func Publish32BE(p *uint32, v uint32) {
	race.Release(unsafe.Pointer(p))
	atomic.StoreUint32(p, bits.ReverseBytes32(v))
}
