package uverbs

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
)

// A memlock compares the process's locked memory with its limit, in bytes. The
// kernel charges the pages that a driver pins: registered memory and, on mlx5, the
// rings of queues.
type memlock struct {
	limit  uint64
	pinned uint64
	// exempt means that the kernel ignores the limit because the process has
	// CAP_IPC_LOCK.
	exempt bool
	// inUserNS means that the process's capabilities are those of a user namespace.
	// They do not exempt it.
	inUserNS bool
}

// readMemlock is a variable for tests.
var readMemlock = func() (m memlock, ok bool) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
		return m, false
	}
	// Without /proc, pinned is 0 and no capability is known.
	status, _ := os.ReadFile("/proc/self/status")
	uidMap, _ := os.ReadFile("/proc/self/uid_map")
	return parseMemlock(lim.Cur, string(status), string(uidMap)), true
}

// parseMemlock parses /proc/self/status and /proc/self/uid_map.
func parseMemlock(limit uint64, status, uidMap string) memlock {
	m := memlock{limit: limit}
	kib, _ := strconv.ParseUint(statusField(status, "VmPin"), 10, 64)   // 0 if the field is missing
	caps, _ := strconv.ParseUint(statusField(status, "CapEff"), 16, 64) // likewise
	m.pinned = kib * 1024
	m.inUserNS = uidMap != "" && !isInitialUserNS(uidMap)
	m.exempt = caps>>unix.CAP_IPC_LOCK&1 != 0 && !m.inUserNS
	return m
}

// isInitialUserNS reports whether uidMap is that of the initial user namespace, in
// which all ids map to themselves. Another namespace may have the same map, but
// that is rare and cannot be detected.
func isInitialUserNS(uidMap string) bool {
	f := strings.Fields(uidMap)
	return len(f) == 3 && f[0] == "0" && f[1] == "0" && f[2] == strconv.FormatUint(math.MaxUint32, 10)
}

// statusField returns the first word of a field of /proc/self/status, or "" if the
// field is missing.
func statusField(status, key string) string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				return f[0]
			}
		}
	}
	return ""
}

// memlockOf returns the limit of the process that uses a device.
func memlockOf(d *ioctl.Device) (m memlock, ok bool) {
	p := d.Process()
	if p == nil {
		return readMemlock()
	}
	m.limit, m.pinned = p.Memlock()
	return m, m.limit != 0
}

// explainMemlock explains that n more bytes for a device exceed the limit on locked
// memory. It returns "" if the limit is not the cause. use is a phrase that says what
// the bytes are for, or "".
func explainMemlock(d *ioctl.Device, n uint64, use string) string {
	m, ok := memlockOf(d)
	if !ok || m.exempt || m.limit == unix.RLIM_INFINITY || n+m.pinned <= m.limit {
		return ""
	}
	text := fmt.Sprintf("%d bytes are needed%s and %d are pinned already, but RLIMIT_MEMLOCK is %d bytes: raise it"+
		" (`ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container)",
		n, use, m.pinned, m.limit)
	if m.inUserNS {
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
