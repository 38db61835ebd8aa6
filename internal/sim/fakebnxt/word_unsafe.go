package fakebnxt

import "unsafe"

// wordOf returns a word of a page at an offset that is a multiple of 4.
func wordOf(b []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&b[off : off+4][0])) }
