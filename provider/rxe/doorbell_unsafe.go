package rxe

import (
	"encoding/binary"
	"unsafe"
)

// bytes returns the argument of write(2).
func (f *notifyFrame) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(f)), unsafe.Sizeof(*f))
}

// offerAddr returns the driver's part of MODIFY_SRQ: the address where the kernel
// writes the offer of a new ring. s is on the heap, which the garbage collector
// does not move.
func (s *srq) offerAddr() []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(uintptr(unsafe.Pointer(&s.offer))))
}
