package driver

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// copyAnywhere writes p to any address of the process, or reads p from there. It
// reports whether the kernel could: the memory may be unmapped or read-only.
func copyAnywhere(addr uint64, p []byte, write bool) bool {
	if len(p) == 0 {
		return true
	}
	local := [1]unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(len(p))
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(p)}}
	var n int
	var err error
	if write {
		n, err = unix.ProcessVMWritev(os.Getpid(), local[:], remote[:], 0)
	} else {
		n, err = unix.ProcessVMReadv(os.Getpid(), local[:], remote[:], 0)
	}
	return err == nil && n == len(p)
}

// probed is the memory that StoresAnywhere writes to.
var probed [1]byte

// StoresAnywhere reports whether the process may use the system call at all. A
// sandbox may forbid it.
func StoresAnywhere() bool {
	return copyAnywhere(uint64(uintptr(unsafe.Pointer(&probed))), []byte{0}, true)
}
