// Package noescape hides a pointer from escape analysis.
//
// Arguments of an interface call escape, and with them the literals that the
// caller wrote at the call site: two allocations for each posted work request.
// Hiding the slice is sound only where the callee keeps nothing of it after it
// returns, which the contract in uverbs/provider.go demands of every provider.
package noescape

import "unsafe"

// most bounds the elements of a slice for the compiler, which wants an array to
// slice. No slice has as many.
const most = 1<<31 - 1

// Slice returns s, and the compiler does not see that it does. The callee that
// gets it must not keep it. A slice without elements comes back as nil.
//
// The pointer goes through a number, which is no pointer to the compiler. The
// caller holds s meanwhile, and nothing moves a stack here.
func Slice[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	p := uintptr(unsafe.Pointer(unsafe.SliceData(s)))
	return (*(**[most]T)(unsafe.Pointer(&p)))[:len(s):len(s)]
}

// Bytes is Slice for bytes, which the compiler inlines at more places.
func Bytes(b []byte) []byte {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), len(b))
}
