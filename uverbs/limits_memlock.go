package uverbs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/memlock"
)

// readMemlock is a variable for tests.
var readMemlock = memlock.Read

// memlockOf returns the limit of the process that uses a device.
func memlockOf(d *ioctl.Device) (m memlock.State, ok bool) {
	p := d.Process()
	if p == nil {
		return readMemlock()
	}
	m.Limit, m.Pinned = p.Memlock()
	return m, m.Limit != 0
}

// explainMemlock explains that n more bytes for a device exceed the limit on locked
// memory. It returns "" if the limit is not the cause. use is a phrase that says what
// the bytes are for, or "".
func explainMemlock(d *ioctl.Device, n uint64, use string) string {
	m, ok := memlockOf(d)
	if !ok || m.Exempt || m.Limit == unix.RLIM_INFINITY || n+m.Pinned <= m.Limit {
		return ""
	}
	text := fmt.Sprintf("%d bytes are needed%s and %d are pinned already, but RLIMIT_MEMLOCK is %d bytes: raise it"+
		" (`ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container)",
		n, use, m.Pinned, m.Limit)
	if m.InUserNS {
		return text + "; CAP_IPC_LOCK of a user namespace does not lift it"
	}
	return text + " or give the process CAP_IPC_LOCK"
}

// pinnedPages returns the number of bytes that the kernel pins for n bytes at addr:
// the size of all pages that they touch.
func pinnedPages(addr uint64, n int) uint64 {
	mask := uint64(os.Getpagesize()) - 1
	return (addr+uint64(n)+mask)&^mask - addr&^mask
}
