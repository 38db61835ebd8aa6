package rxe

import (
	"encoding/binary"
	"unsafe"
)

// bytes returns the part of the frame that is written.
func (f *bellFrame) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(f)), unsafe.Offsetof(f.reply))
}

// replyAddr is where the kernel puts its reply. The frame is part of a heap
// object, which the garbage collector does not move.
func (f *bellFrame) replyAddr() uint64 {
	return uint64(uintptr(unsafe.Pointer(&f.reply)))
}

func (f *notifyFrame) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(f)), unsafe.Sizeof(*f))
}

// offerAddr is the vendor's part of MODIFY_SRQ: where the kernel writes the
// offer of a new ring. s lies on the heap, as the frame above.
func (s *srq) offerAddr() []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(uintptr(unsafe.Pointer(&s.offer))))
}
