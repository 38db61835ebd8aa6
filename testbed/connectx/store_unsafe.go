package connectx

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// storeLast stores a word, which says that what is before it is complete, after
// all that was stored before. p is aligned: the driver chose pages, the device
// what is in them.
func storeLast(p []byte, word []byte) {
	at := unsafe.Pointer(unsafe.SliceData(p[:4]))
	if uintptr(at)%4 != 0 {
		copy(p[:4], word)
		return
	}
	atomic.StoreUint32((*uint32)(at), binary.NativeEndian.Uint32(word))
}
