//go:build vm && soak

package faults

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestSoakFaults runs all tests for much longer, on each kernel.
func TestSoakFaults(t *testing.T) {
	how := scale{messages: number(t, "GOVERBS_SOAK_MESSAGES"), kills: number(t, "GOVERBS_SOAK_KILLS"),
		limit: 30 * time.Minute, soak: true}
	how.iters = how.messages / 20
	for _, kernel := range []string{"6.12", "6.1", "7.2"} {
		t.Run(kernel, func(t *testing.T) { testFaults(t, kernel, how) })
		t.Run(kernel+"/long", func(t *testing.T) {
			p := newPair(t, kernel, how)
			t.Cleanup(func() { p.table(t) })
			for _, f := range networkFaults {
				if f.name == "reordering" || f.name == "loss 5 %" {
					t.Run(f.name, func(t *testing.T) { p.testLongReads(t, f) })
				}
				if f.name == "reordering" {
					t.Run("sends", func(t *testing.T) { p.testLongSends(t, f) })
				}
			}
		})
	}
}

func number(t *testing.T, name string) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		t.Fatalf("set %s to a number: %v", name, err)
	}
	return n
}
