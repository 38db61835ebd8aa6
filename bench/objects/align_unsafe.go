package main

import "unsafe"

// align returns the number of bytes of b before the first multiple of n.
func align(b []byte, n uintptr) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (n - 1))
}
