//go:build vm

package main

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// TestMemoryOps runs rdma-core's tests of atomic operations on device memory.
// They need a context with DevX, so the page has them as skipped.
func TestMemoryOps(t *testing.T) {
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			if kernel != "6.12" {
				vm.SkipRepeat(t, "6.12")
			}
			w := world.StartTest(t, world.Config{LinkLayer: connectx.InfiniBand, Devices: 1,
				Adapt: func(_ int, c *connectx.Config) { c.DevX = true }})
			g := vm.Start(t, vm.Config{Kernel: kernel, Root: true, Modules: []string{"mlx5_ib"}, VFIOUser: w.Sockets()})
			program.Until(t, g, "grep -qs ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
			results, err := pyverbs.Run(t.Context(), g, []string{"test_mlx5_dm_ops"}, "--dev", "mlx5_0", "--port", "1")
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Outcome != pyverbs.Pass {
					t.Errorf("%s: %s: %s", r.Name, r.Outcome, r.Why)
				}
			}
			if len(results) != 2 {
				t.Errorf("%d tests ran, want 2", len(results))
			}
			checkLog(t, g)
		})
	}
}
