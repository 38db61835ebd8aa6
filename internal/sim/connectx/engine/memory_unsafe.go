package engine

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/race"
)

// Words shared by the host's processors and the device without a lock are
// loaded and stored atomically, in order with the accesses around them.

// loadBE32 loads the word at the start of p.
func loadBE32(p []byte) uint32 {
	at := unsafe.Pointer(unsafe.SliceData(p[:4]))
	if uintptr(at)%4 != 0 {
		return binary.BigEndian.Uint32(p)
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], atomic.LoadUint32((*uint32)(at)))
	race.Acquire(at)
	return binary.BigEndian.Uint32(b[:])
}

// StoreLast stores four bytes at the start of p, after all preceding stores:
// the bytes signal to the host that the rest is complete.
func StoreLast(p []byte, word []byte) {
	at := unsafe.Pointer(unsafe.SliceData(p[:4]))
	if uintptr(at)%4 != 0 {
		copy(p[:4], word)
		return
	}
	race.Release(at)
	atomic.StoreUint32((*uint32)(at), binary.NativeEndian.Uint32(word))
}
