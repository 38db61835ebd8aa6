//go:build vm

package main

import (
	"slices"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// dcModules are rdma-core's tests of DC and of rdma_cm with it. All of their tests must pass but those of
// mayBeSkipped: libmlx5 maps addresses to queue pairs by an object of DevX that the device does not have, and rdma_cm
// needs a network device.
var (
	dcModules    = map[string]int{"test_mlx5_dc": 8, "test_mlx5_rdmacm": 2}
	mayBeSkipped = map[string][]string{
		"test_dc_ah_to_qp_mapping":                 {ib, roce},
		"test_rdmacm_async_traffic_dc_external_qp": {ib},
	}
)

// TestDCPython runs rdma-core's tests of DC. The page has them, too; this test is in every run.
func TestDCPython(t *testing.T) {
	for _, p := range places {
		t.Run(p.String(), func(t *testing.T) {
			if p.kernel != "6.12" || p.link != roce {
				vm.SkipRepeat(t, "6.12 "+roce+", and DC of uverbs on 6.12 "+ib)
			}
			runModules(t, p, dcModules)
		})
	}
}

// TestOutOfOrderPython runs rdma-core's tests of out-of-order queue pairs, which of these kernels only 7.2 has. The
// page has them, too; this test is in every run.
func TestOutOfOrderPython(t *testing.T) {
	for _, p := range places {
		if p.kernel != "7.2" {
			continue
		}
		t.Run(p.String(), func(t *testing.T) {
			if p.link != roce {
				vm.SkipRepeat(t, roce)
			}
			runModules(t, p, map[string]int{"test_mlx5_ooo_qp": 3})
		})
	}
}

// runModules runs modules, which have so many tests. All must pass but those of mayBeSkipped.
func runModules(t *testing.T, p place, modules map[string]int) {
	t.Helper()
	w := world.StartTest(t, world.Config{LinkLayer: p.layer(), Devices: 1,
		Adapt: func(_ int, c *connectx.Config) { c.ODP = true }})
	g := vm.Start(t, p.guest(w))
	if err := prepare(t.Context(), p, g); err != nil {
		t.Fatal(err)
	}
	program.Until(t, g, "grep -qs ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
	for module, n := range modules {
		results, err := pyverbs.Run(t.Context(), g, []string{module}, p.pyverbsArgs()...)
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != n {
			t.Errorf("%s has %d tests, want %d", module, len(results), n)
		}
		for _, r := range results {
			if r.Outcome == pyverbs.Fail || r.Outcome == pyverbs.Skip && !slices.Contains(mayBeSkipped[r.Name], p.link) {
				t.Errorf("%s.%s: %s: %s", r.Module, r.Name, r.Outcome, r.Why)
			}
		}
	}
	checkLog(t, g)
}
