package foreign_test

import "unsafe"

// addressOf returns the address of memory that does not move.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
