// Package memlock reads how much memory the kernel lets this process lock. Registered
// memory is locked.
package memlock

import (
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A State compares the process's locked memory with its limit, in bytes. The
// kernel charges the pages that a driver pins: registered memory and, on mlx5, the
// rings of queues.
type State struct {
	Limit  uint64
	Pinned uint64
	// Exempt means that the kernel ignores the limit because the process has
	// CAP_IPC_LOCK.
	Exempt bool
	// InUserNS means that the process's capabilities are those of a user namespace.
	// They do not exempt it.
	InUserNS bool
}

// Read returns the State of this process. ok is false if the limit is not known.
func Read() (s State, ok bool) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
		return s, false
	}
	// Without /proc, Pinned is 0 and no capability is known.
	status, _ := os.ReadFile("/proc/self/status")
	uidMap, _ := os.ReadFile("/proc/self/uid_map")
	return parse(lim.Cur, string(status), string(uidMap)), true
}

// parse parses /proc/self/status and /proc/self/uid_map.
func parse(limit uint64, status, uidMap string) State {
	m := State{Limit: limit}
	kib, _ := strconv.ParseUint(statusField(status, "VmPin"), 10, 64)   // 0 if the field is missing
	caps, _ := strconv.ParseUint(statusField(status, "CapEff"), 16, 64) // likewise
	m.Pinned = kib * 1024
	m.InUserNS = uidMap != "" && !isInitialUserNS(uidMap)
	m.Exempt = caps>>unix.CAP_IPC_LOCK&1 != 0 && !m.InUserNS
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
