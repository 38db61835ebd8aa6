package devx

import "unsafe"

// addressOf returns the address of b for the kernel. b is not Go memory, so it does not move.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// registerOf returns the register at the beginning of b, which is a multiple of 8 bytes into a page.
func registerOf(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(&b[:8][0])) }
