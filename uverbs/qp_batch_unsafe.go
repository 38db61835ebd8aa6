package uverbs

import "unsafe"

// The two methods contain what noescape.Bytes does instead of a call of it. With the call, the
// compiler would not inline them.

// SendInline is Send and Inline in one call.
//
//go:nocheckptr
func (b *SendBatch) SendInline(wrID uint64, f SendFlags, data []byte) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	b.impl.OpInline(OpSend, f, wrID, 0, 0, unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), len(data)))
}

// WriteInline is Write and Inline in one call.
//
//go:nocheckptr
func (b *SendBatch) WriteInline(wrID uint64, f SendFlags, raddr uint64, rkey uint32, data []byte) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	b.impl.OpInline(OpWrite, f, wrID, raddr, rkey, unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), len(data)))
}
