package mlx5

import (
	"encoding/binary"
	"unsafe"

	"github.com/goverbs/goverbs/mmio"
)

// A plain access in Go would also load the byte to check the pointer, and the device would execute the operation twice.

// loadOnce loads b, which is 1, 2, 4 or 8 bytes of mapped device memory, into p.
func loadOnce(p, b []byte) {
	at := unsafe.Pointer(unsafe.SliceData(b))
	switch len(b) {
	case 1:
		p[0] = mmio.Load8((*uint8)(at))
	case 2:
		binary.NativeEndian.PutUint16(p, mmio.Load16((*uint16)(at)))
	case 4:
		binary.NativeEndian.PutUint32(p, mmio.Load32((*uint32)(at)))
	case 8:
		binary.NativeEndian.PutUint64(p, mmio.Load64((*uint64)(at)))
	}
}

// storeOnce stores p to b.
func storeOnce(b, p []byte) {
	at := unsafe.Pointer(unsafe.SliceData(b))
	switch len(b) {
	case 1:
		mmio.Store8((*uint8)(at), p[0])
	case 2:
		mmio.Store16((*uint16)(at), binary.NativeEndian.Uint16(p))
	case 4:
		mmio.Store32((*uint32)(at), binary.NativeEndian.Uint32(p))
	case 8:
		mmio.Store64((*uint64)(at), binary.NativeEndian.Uint64(p))
	}
}
