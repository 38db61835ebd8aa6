//go:build vm

package cshim_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/verbstest"
)

// The modules of rdma-core's tests in Python, with those that fail. Raw packets are for programs of this process, and
// the memory of a context that processes share is that of the first. The other modules need what the device lacks.
var modules = map[string][]string{
	"test_addr": nil, "test_atomic": nil, "test_cq": nil, "test_cq_events": nil, "test_cqex": nil,
	"test_device": {"test_multi_process_alloc_dm"}, "test_fork": nil, "test_mr": nil, "test_parent_domain": nil,
	"test_pd": nil, "test_qp": {"test_create_raw_qp_ex_no_attr", "test_create_raw_qp_ex_with_attr",
		"test_create_raw_qp_no_attr", "test_create_raw_qp_with_attr", "test_query_raw_qp"},
	"test_qpex": nil, "test_srq": nil,
}

// quick has the modules that are always run.
var quick = []string{"test_atomic", "test_mr", "test_pd"}

func TestPyverbs(t *testing.T) {
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		t.Run(module, func(t *testing.T) {
			if !slices.Contains(quick, module) {
				vm.SkipRepeat(t, "the tests that make parity runs in guests")
			}
			h := cshim.New(t, verbstest.New(t))
			args := pyverbs.Args(h.Path(pyverbs.Dir), []string{module}, "--dev", "mlx5_0", "--gid", "3")
			results, err := pyverbs.RunOn(h.Command("python3", args...))
			if err != nil {
				t.Error(err)
			}
			passed := 0
			for _, r := range results {
				fails := slices.Contains(modules[module], r.Name)
				switch {
				case fails != (r.Outcome == pyverbs.Fail):
					t.Errorf("%s: %s %s", r.Name, r.Outcome, r.Why)
				case r.Outcome == pyverbs.Pass:
					passed++
				}
			}
			if passed == 0 {
				t.Errorf("no test has passed: %v", results)
			}
		})
	}
}
