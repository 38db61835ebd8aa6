package devfile

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

// Publish writes an entry of a CQ. The word at an offset is stored last. seen is the entry as the program of this
// process sees it, which may be at another address, or empty.
func Publish(entry, seen, from []byte, word int) {
	copy(entry[:word], from)
	copy(entry[word+8:], from[word+8:])
	if len(seen) > 0 {
		race.Release(unsafe.Pointer(&seen[word]))
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&entry[word])), binary.NativeEndian.Uint64(from[word:]))
}
