package uverbs

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// addressOf is where b lies. Memory that a device knows is pinned or outside
// the Go heap.
func addressOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// readNow reads a descriptor that does not block.
func readNow(fd uintptr, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(start(b)), uintptr(len(b)))
	return int(n), errno
}

// pages rounds up to whole pages.
func pages(n int) uintptr {
	page := os.Getpagesize()
	return uintptr((n + page - 1) / page * page)
}

// mapPages returns n zero bytes of their own pages, aligned to a huge page
// where they fill one.
func mapPages(n int) ([]byte, error) {
	if n > 1<<46 { // beyond any address space, and the arithmetic below
		return nil, unix.ENOMEM
	}
	size := pages(n)
	room := size
	if n >= hugePage {
		room += hugePage
	}
	p, err := unix.MmapPtr(-1, 0, nil, room, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	if room == size {
		return unsafe.Slice((*byte)(p), n), nil
	}
	lead := -uintptr(p) & (hugePage - 1)
	if err := trim(p, room, lead, size); err != nil {
		return nil, errors.Join(err, unix.MunmapPtr(p, room))
	}
	b := unsafe.Slice((*byte)(unsafe.Add(p, lead)), n)
	// Without huge pages it is slower and no less right.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	return b, nil
}

// trim unmaps what lies before and behind the size bytes at p+lead.
func trim(p unsafe.Pointer, room, lead, size uintptr) error {
	if lead > 0 {
		if err := unix.MunmapPtr(p, lead); err != nil {
			return err
		}
	}
	if tail := room - lead - size; tail > 0 {
		return unix.MunmapPtr(unsafe.Add(p, lead+size), tail)
	}
	return nil
}

// storeAnywhere writes p to any memory of the process. The kernel says so where
// there is none, or it may only be read.
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

// probed is what storesAnywhere writes to.
var probed [1]byte

// storesAnywhere tells whether the process may do so at all: a sandbox may forbid
// the call.
func storesAnywhere() bool { return storeAnywhere(addressOf(probed[:]), []byte{0}) }

// loadAnywhere is storeAnywhere the other way.
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

func unmapPages(b []byte) error {
	return os.NewSyscallError("munmap", unix.MunmapPtr(start(b), pages(len(b))))
}

// forbidPages takes the memory away and keeps its address range, so that a
// stale slice faults instead of aliasing another buffer.
func forbidPages(b []byte) error {
	_, err := unix.MmapPtr(-1, 0, start(b), pages(len(b)), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return os.NewSyscallError("mmap", err)
}
