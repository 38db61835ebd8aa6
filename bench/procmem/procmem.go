// Package procmem measures the memory of processes.
package procmem

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// A Usage is the memory of a process, in bytes, and the number of its mappings. Pinned is the memory that its devices
// access, which is in RSS too.
type Usage struct{ RSS, Mapped, Mappings, Pinned float64 }

// Now returns what this process uses after a garbage collection.
func Now() (Usage, error) {
	debug.FreeOSMemory()
	return Of(os.Getpid())
}

// Of returns what a process uses.
func Of(pid int) (u Usage, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		for name, to := range map[string]*float64{"VmRSS:": &u.RSS, "VmSize:": &u.Mapped, "VmPin:": &u.Pinned} {
			if f[0] == name {
				kib, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					return u, err
				}
				*to = kib * 1024
			}
		}
	}
	maps, err := os.ReadFile(dir + "maps")
	u.Mappings = float64(bytes.Count(maps, []byte("\n")))
	return u, err
}

// Print writes how much each of n objects of a kind has added between two usages.
func Print(w io.Writer, kind string, n int, before, after Usage) error {
	each := float64(max(n, 1))
	_, err := fmt.Fprintf(w, "%s.rss %.0f\n%s.mapped %.0f\n%s.mappings %.3f\n", kind, (after.RSS-before.RSS)/each,
		kind, (after.Mapped-before.Mapped)/each, kind, (after.Mappings-before.Mappings)/each)
	return err
}
