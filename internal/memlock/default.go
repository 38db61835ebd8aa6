package memlock

import (
	"math"
	"math/bits"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/machine"
)

// Default returns how much memory the connections of a listener may register by default, in bytes: three quarters of
// the limit on locked memory if this process has one, and otherwise half of the machine's memory or of GOMEMLIMIT.
func Default() int64 {
	limit, ok := lockLimit()
	if ok {
		return int64(limit / 4 * 3)
	}
	most := debug.SetMemoryLimit(-1)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil { // it does not fail
		most = min(most, int64(uint64(info.Totalram)*uint64(info.Unit)))
	}
	return most / 2
}

// lockLimit returns the limit on locked memory. ok is false if there is none.
func lockLimit() (limit uint64, ok bool) {
	if m := machine.Current(); m != nil {
		if l, is := m.(interface{ Memlock() (limit, pinned uint64) }); is {
			limit, _ = l.Memlock()
		}
		return limit, limit != 0
	}
	s, ok := Read()
	return s.Limit, ok && !s.Exempt && s.Limit < math.MaxInt64
}

// Queues returns about how many bytes the rings of a connection have, with one completion queue. Adapters pin them.
func Queues(sends, receives, completions int) int64 {
	const sendEntry, recvEntry, completion = 256, 16, 64
	return int64(ring(sends, sendEntry) + ring(receives, recvEntry) + ring(completions, completion))
}

// SharedQueue returns about how many bytes the ring of a shared receive queue has.
func SharedQueue(receives int) int64 {
	const entry, wrID = 32, 8
	return int64(ring(receives+1, entry+wrID))
}

// ring returns the size of a ring, which is not allocated if it has no entries.
func ring(entries, size int) int {
	if entries == 0 {
		return 0
	}
	return max(1<<bits.Len(uint(entries-1))*size, os.Getpagesize())
}
