//go:build vm && soak

package main

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestSoakMessages exchanges a million messages, or GOVERBS_SOAK_RC, at each
// place. None may be lost, corrupt or duplicated.
func TestSoakMessages(t *testing.T) {
	x := traffic{count: 1_000_000, limit: 3 * time.Hour}
	if text := os.Getenv("GOVERBS_SOAK_RC"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			t.Fatalf("GOVERBS_SOAK_RC=%q: a number of messages", text)
		}
		x.count = max(2, (n+4*batch-1)/(4*batch)) * 4 * batch
	}
	m := startMachines(t, place{"6.12", roce}, 2)
	m.leavesNothing(t, func(t *testing.T) { m.testMessages(t, x, true) })
	m.powerOff(t)
}
