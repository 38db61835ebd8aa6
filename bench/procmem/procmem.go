// Package procmem measures the memory of this process.
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

// A Usage is the memory of the process, in bytes, and the number of its mappings.
type Usage struct{ RSS, Mapped, Mappings float64 }

// Now returns what the process uses after a garbage collection.
func Now() (u Usage, err error) {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		for name, to := range map[string]*float64{"VmRSS:": &u.RSS, "VmSize:": &u.Mapped} {
			if f[0] == name {
				kib, err := strconv.ParseFloat(f[1], 64)
				if err != nil {
					return u, err
				}
				*to = kib * 1024
			}
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
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
