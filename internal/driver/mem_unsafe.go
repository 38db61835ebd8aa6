package driver

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// storeAnywhere writes p to any address of the process. It reports whether the
// kernel could write there: the memory may be unmapped or read-only.
func storeAnywhere(addr uint64, p []byte) bool {
	if len(p) == 0 {
		return true
	}
	from := [1]unix.Iovec{{Base: &p[0]}}
	from[0].SetLen(len(p))
	to := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(p)}}
	n, err := unix.ProcessVMWritev(os.Getpid(), from[:], to[:], 0)
	return err == nil && n == len(p)
}

// probed is the memory that StoresAnywhere writes to.
var probed [1]byte

// StoresAnywhere reports whether the process may use the system call at all. A
// sandbox may forbid it.
func StoresAnywhere() bool { return storeAnywhere(uint64(uintptr(unsafe.Pointer(&probed))), []byte{0}) }

// loadAnywhere is like storeAnywhere, but reads.
func loadAnywhere(addr uint64, p []byte) bool {
	if len(p) == 0 {
		return true
	}
	to := [1]unix.Iovec{{Base: &p[0]}}
	to[0].SetLen(len(p))
	from := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(p)}}
	n, err := unix.ProcessVMReadv(os.Getpid(), to[:], from[:], 0)
	return err == nil && n == len(p)
}
