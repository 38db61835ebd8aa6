package main

import "unsafe"

// align is how many bytes of b lie before a multiple of n.
func align(b []byte, n uintptr) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (n - 1))
}
