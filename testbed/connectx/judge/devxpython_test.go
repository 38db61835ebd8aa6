//go:build vm

package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// devxModules are rdma-core's tests of what needs a context with DevX, with the tests that must pass. Those that
// depend on the link layer are in devxOn.
var (
	devxModules = map[string][]string{
		"test_mlx5_devx":   {"test_devx_rc_qp_send_imm_traffic"},
		"test_mlx5_dm_ops": {"test_dm_atomic_ops", "test_parallel_dm_atomic_ops"},
	}
	devxOn = map[string]map[string][]string{
		roce: {"test_mlx5_uar": {"test_alloc_uar"}, "test_mlx5_udp_sport": {"test_rc_modify_udp_sport"}},
	}
)

// TestDevXPython runs rdma-core's tests of queues created by DevX, of atomic operations on device memory, and of UDP
// source ports. The page has them, too; this test is in every run.
func TestDevXPython(t *testing.T) {
	for _, p := range places {
		t.Run(p.String(), func(t *testing.T) {
			if p.kernel != "6.12" || p.link != roce {
				vm.SkipRepeat(t, "6.12 "+roce+", and provider/mlx5/devx on 6.12 "+ib)
			}
			w := world.StartTest(t, world.Config{LinkLayer: p.layer(), Devices: 1,
				Violation: func(string, engine.Violation) {}}) // the tests do not mark the entries of new CQs invalid
			g := vm.Start(t, p.guest(w))
			if err := prepare(t.Context(), p, g); err != nil {
				t.Fatal(err)
			}
			program.Until(t, g, "grep -qs ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
			want := maps.Clone(devxModules)
			maps.Copy(want, devxOn[p.link])
			results, err := pyverbs.Run(t.Context(), g, slices.Sorted(maps.Keys(want)), p.pyverbsArgs()...)
			if err != nil {
				t.Fatal(err)
			}
			passed := make(map[string]bool)
			for _, r := range results {
				passed[r.Module+r.Name] = r.Outcome == pyverbs.Pass
				if r.Outcome == pyverbs.Fail {
					t.Errorf("%s.%s: %s", r.Module, r.Name, r.Why)
				}
			}
			for module, names := range want {
				for _, name := range names {
					if !passed[module+name] {
						t.Errorf("%s.%s did not pass: %v", module, name, results)
					}
				}
			}
			checkLog(t, g)
		})
	}
}
