// Package noescape hides a pointer from escape analysis.
//
// Arguments of an interface call escape, including composite literals at the
// call site of a public function: two allocations for each posted work request.
// Hiding the slice is sound only if the callee retains nothing of it after it
// returns, which package internal/driver requires of every provider.
package noescape

import "unsafe"

// maxLen is the length of the array type that Slice slices. No slice is longer.
const maxLen = 1<<31 - 1

// Slice returns s in a way that hides it from escape analysis. The callee that
// receives the result must not retain it. An empty slice becomes nil.
//
// The pointer is converted to an integer and back, which escape analysis does
// not follow. This is safe, because the caller keeps s alive and nothing in
// between can move the stack. The pointer checks that -race adds could move it.
//
//go:nocheckptr
func Slice[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	p := uintptr(unsafe.Pointer(unsafe.SliceData(s)))
	return (*(**[maxLen]T)(unsafe.Pointer(&p)))[:len(s):len(s)]
}

// Bytes is Slice for bytes. The compiler inlines it in more places.
//
//go:nocheckptr
func Bytes(b []byte) []byte {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), len(b))
}
