//go:build vm && speed

package efa_test

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
	"github.com/goverbs/goverbs/testbed/cshim/compare"
	"github.com/goverbs/goverbs/uverbs"
)

// TestCost counts the instructions of posts and polls, which docs/evidence/benchmarks.md has.
func TestCost(t *testing.T) {
	size := compare.Size{Type: uverbs.SRD, Sends: 64, Recvs: 64, SGEs: 1, RecvSGEs: 1, Inline: 32}
	compare.Cost(t, program, size, func(tb testing.TB) compare.Costed {
		r := &recording{t: t, rings: 1}
		cfg := fakeefa.Default
		cfg.Record = func(_, what string) { r.withoutID(0, what) }
		f := fakeefa.New(tb, 1, cfg)
		return compare.Costed{Name: f.Device(0).Name(), Complete: func(receives bool, n int) {
			queue := sendQueue
			if receives {
				queue = recvQueue
			}
			for range n {
				var raw [32]byte
				raw[3] = byte(queue+1) << 1
				binary.LittleEndian.PutUint16(raw[:], r.ids[0][queue][r.open[queue][0]])
				binary.LittleEndian.PutUint16(raw[4:], 1)
				r.open[queue] = r.open[queue][1:]
				f.Device(0).Inject(0, raw)
			}
		}}
	})
}
