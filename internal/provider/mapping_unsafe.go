package provider

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// overlay maps zero pages over mem, at its address. The kernel does this in one
// step: the range is mapped at all times.
func overlay(mem []byte) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	if err != nil {
		return err
	}
	// After mlockall(MCL_FUTURE) the kernel has filled the range with locked pages,
	// which would stay until the Mapping is unmapped. If a goroutine touches them
	// again, they are zero pages again. A failure only costs memory.
	if unix.Munlock(mem) == nil {
		_ = unix.Madvise(mem, unix.MADV_DONTNEED)
	}
	return nil
}
