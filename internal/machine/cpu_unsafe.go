package machine

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// CPUNode returns the NUMA node of the CPU that the calling goroutine runs on, or -1. It costs a system call that does
// not sleep. The goroutine may run elsewhere a moment later.
func CPUNode() int {
	var node uint32
	// Raw, since getcpu cannot sleep: the kernel only copies two numbers.
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, 0, uintptr(unsafe.Pointer(&node)), 0); errno != 0 {
		return -1
	}
	return int(node)
}
