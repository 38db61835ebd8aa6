package provider

import "unsafe"

// bytes returns the part of the frame that is passed to write(2).
func (f *bellFrame) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(f)), unsafe.Offsetof(f.reply))
}

// replyAddr returns the address where the kernel writes its reply. The frame is
// part of a heap object, which the garbage collector does not move.
func (f *bellFrame) replyAddr() uint64 {
	return uint64(uintptr(unsafe.Pointer(&f.reply)))
}
