package uverbs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/race"
)

// closedMemory is the protection of memory from PD.Alloc after the MR was closed.
var closedMemory = map[bool]string{false: "---p", true: "rw-p"}[race.Enabled]

// protection returns the permissions of the page at addr in /proc/self/maps, such as "rw-p", or ""
// if nothing is mapped there.
func protection(t testing.TB, addr uint64) string {
	t.Helper()
	for _, line := range mapsLines(t) {
		var lo, hi uint64
		var prot string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &lo, &hi, &prot); err == nil && lo <= addr && addr < hi {
			return prot
		}
	}
	return ""
}

func mapsLines(t testing.TB) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	check(t, err)
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
