package rdmacmtest

import "unsafe"

// payload returns the message's payload, whose size has been checked.
func payload[T any](m *message) *T { return (*T)(unsafe.Pointer(unsafe.SliceData(m.in))) }

// reply writes the reply, truncated to its buffer.
func reply[T any](m *message, v T) {
	copy(m.reply, bytesOf(&v))
}

func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
