package rxe

import (
	"encoding/binary"
	"unsafe"
)

// bytes returns the part of the frame that is passed to write(2).
func (f *bellFrame) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(f)), unsafe.Offsetof(f.reply))
}

// replyAddr returns the address where the kernel writes its reply. The frame is
// part of a heap object, which the garbage collector does not move.
func (f *bellFrame) replyAddr() uint64 {
	return uint64(uintptr(unsafe.Pointer(&f.reply)))
}

func (f *notifyFrame) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(f)), unsafe.Sizeof(*f))
}

// offerAddr returns the driver's part of MODIFY_SRQ: the address where the kernel
// writes the offer of a new ring. s is on the heap, like the frame above.
func (s *srq) offerAddr() []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(uintptr(unsafe.Pointer(&s.offer))))
}
