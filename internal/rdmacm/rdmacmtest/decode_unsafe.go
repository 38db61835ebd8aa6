package rdmacmtest

import "unsafe"

// payload reads the message's payload, whose size has been checked.
func payload[T any](m *message) *T { return (*T)(unsafe.Pointer(unsafe.SliceData(m.in))) }

// answer writes the reply, cut to the room that there is.
func answer[T any](m *message, v T) {
	copy(m.reply, bytesOf(&v))
}

func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
