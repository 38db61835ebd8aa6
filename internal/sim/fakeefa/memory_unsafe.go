package fakeefa

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/race"
)

// view returns n bytes of this process.
func view(addr uint64, n int) []byte {
	// Commands contain addresses as numbers, so a number must be converted to a pointer here. The
	// owner of the memory keeps it alive until it has deregistered it.
	at := uintptr(addr)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
}

// publish writes an entry of a CQ. The word with the phase is stored last. seen is the entry as the program of this
// process sees it, at another address, or empty.
func publish(entry, seen, from []byte) {
	copy(entry[8:], from[8:])
	if len(seen) > 0 {
		race.Release(unsafe.Pointer(unsafe.SliceData(seen)))
	}
	at := unsafe.Pointer(unsafe.SliceData(entry))
	atomic.StoreUint64((*uint64)(at), binary.NativeEndian.Uint64(from))
}
