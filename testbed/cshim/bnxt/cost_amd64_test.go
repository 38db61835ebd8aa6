//go:build vm && speed

package bnxt_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/testbed/cshim/compare"
	"github.com/goverbs/goverbs/uverbs"
)

// TestCost counts the instructions of posts and polls, which docs/evidence/benchmarks.md has.
func TestCost(t *testing.T) {
	size := compare.Size{Type: uverbs.RC, Sends: 64, Recvs: 64, SGEs: 1, RecvSGEs: 1, Inline: 32}
	compare.Cost(t, program, size, func(t testing.TB) compare.Costed {
		cfg := fakebnxt.P5
		cfg.Record = func(string, string) {}
		d := fakebnxt.New(t, 1, cfg).Device(0)
		return compare.Costed{Name: d.Name(), Complete: func(receives bool, n int) {
			for range n {
				if receives {
					d.CompleteReceive(0, false, [32]byte{24: 1 << 1})
				} else {
					d.CompleteSends(1, [32]byte{})
				}
			}
		}}
	})
}
