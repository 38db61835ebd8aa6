package uverbs

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// addressOf returns the address of b. Memory that is registered with a device does
// not move: it is pinned or outside the Go heap.
func addressOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

func start(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// readNow reads from a nonblocking descriptor.
func readNow(fd uintptr, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(start(b)), uintptr(len(b)))
	return int(n), errno
}

// pages rounds n up to whole pages.
func pages(n int) uintptr {
	page := os.Getpagesize()
	return uintptr((n + page - 1) / page * page)
}

// mapPages returns n zero bytes in pages that hold nothing else. If they fill a
// huge page, they are aligned to one.
func mapPages(n int) ([]byte, error) {
	if n > 1<<46 { // larger than any address space; also avoids an overflow below
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
	if p, err = trim(p, room, lead, size); err != nil {
		return nil, err
	}
	b := unsafe.Slice((*byte)(p), n)
	// Huge pages only make it faster.
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	return b, nil
}

// munmap is a variable for tests.
var munmap = unix.MunmapPtr

// trim unmaps the memory before and after the size bytes at p+lead, and returns
// their address. At vm.max_map_count, the kernel refuses to split a larger mapping.
// trim then unmaps the rest, but not again what it has unmapped: another thread may
// have mapped that range since.
func trim(p unsafe.Pointer, room, lead, size uintptr) (unsafe.Pointer, error) {
	if lead > 0 {
		if err := munmap(p, lead); err != nil {
			return nil, errors.Join(err, munmap(p, room))
		}
		p = unsafe.Add(p, lead)
	}
	if tail := room - lead - size; tail > 0 {
		if err := munmap(unsafe.Add(p, size), tail); err != nil {
			return nil, errors.Join(err, munmap(p, size+tail))
		}
	}
	return p, nil
}

func unmapPages(b []byte) error {
	return os.NewSyscallError("munmap", unix.MunmapPtr(start(b), pages(len(b))))
}

// forbidPages frees the memory but keeps its address range, so that a stale slice
// faults instead of aliasing another buffer.
func forbidPages(b []byte) error {
	_, err := unix.MmapPtr(-1, 0, start(b), pages(len(b)), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	// After mlockall(MCL_FUTURE) the range counts as locked memory. If munlock fails,
	// the only effect is that the range still counts towards the limit.
	_ = unix.Munlock(unsafe.Slice((*byte)(start(b)), pages(len(b))))
	return nil
}
