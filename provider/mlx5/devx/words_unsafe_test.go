//go:build device

package devx_test

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// store stores a big-endian word that the device reads.
func store(b []byte, v uint32) {
	var word [4]byte
	binary.BigEndian.PutUint32(word[:], v)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[0])), binary.NativeEndian.Uint32(word[:]))
}

// load loads a big-endian word that the device stores.
func load(b []byte) uint32 {
	var word [4]byte
	binary.NativeEndian.PutUint32(word[:], atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0]))))
	return binary.BigEndian.Uint32(word[:])
}
