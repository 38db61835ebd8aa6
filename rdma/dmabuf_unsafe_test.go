//go:build device

package rdma_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dmaBuf returns n bytes of memory that is a dma-buf of /dev/udmabuf, and its descriptor.
func dmaBuf(t *testing.T, n int) (b []byte, fd int) {
	t.Helper()
	dev := must(unix.Open("/dev/udmabuf", unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(dev)
	mem := must(unix.MemfdCreate("dma-buf", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	defer unix.Close(mem)
	check(t, unix.Ftruncate(mem, int64(n)))
	must(unix.FcntlInt(uintptr(mem), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))(t)
	create := struct { // struct udmabuf_create, linux/udmabuf.h
		memfd, flags uint32
		offset, size uint64
	}{memfd: uint32(mem), size: uint64(n)}
	const udmabufCreate = 0x40187542
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(dev), udmabufCreate, uintptr(unsafe.Pointer(&create)))
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { check(t, unix.Close(int(r))) })
	b = must(unix.Mmap(mem, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { check(t, unix.Munmap(b)) })
	return b, int(r)
}
