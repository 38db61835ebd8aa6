package provider

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// overlay maps zero pages over mem, at its address. The kernel does that in one
// step: there is no moment at which the range is not mapped.
func overlay(mem []byte) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	return err
}
