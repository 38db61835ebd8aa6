//go:build vm

package speed

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// A dcBudget is a budget for requests of a DCI, and the maximum ratios to C's figure, or 0, if C is compiled by tcc, as
// by default, and by gcc (GOVERBS_SPEED_DC): tcc makes C's loop longer. A request of Go's list is compared with one of
// C's batch, because libmlx5 has no other interface for DC.
type dcBudget struct {
	budget
	tcc, gcc float64
}

var dcBudgets = []dcBudget{
	{budget{"dc", 208, 198, ""}, 0.63, 0.8},
	{budget{"dcinline", 235, 225, ""}, 0.64, 0.8},
	{budget{"dclist32", 104, 104, ""}, 0.53, 0.7},
	{budget{"dclist32inline", 134, 134, ""}, 0.55, 0.7},
	{budget{"dcbuilder32", 164, 164, "dclist32"}, 0, 0},
	{budget{"dcbuilder32inline", 187, 187, "dclist32inline"}, 0, 0},
}

// testDCCost compares the costs of requests of a DCI with their budgets and with those of C in the same guest, and
// prints them.
func testDCCost(t *testing.T, g *vm.Guest, goes string) {
	const programInC = "GOVERBS_SPEED_DC"
	inC := costInC(t, g, programInC, "testdata/dccost.c", "mlx5")
	c := measure(t, g, ready+inC+" mlx5_0 4")
	alone := measure(t, g, "MLX5_SINGLE_THREADED=1 "+inC+" mlx5_0 4")
	locked, single := measure(t, g, goes+" -dc -rounds 4"), measure(t, g, goes+" -dc -single -rounds 4")
	t.Logf("C's loop alone: %.1f for one request, %.1f in a list", c["loop1"], c["loop32"])
	t.Logf("%-16s %7s %7s %7s %7s", "instructions", "Go", "C", "Go 1", "C 1")
	for _, b := range dcBudgets {
		limit := b.tcc
		if os.Getenv(programInC) != "" {
			limit = b.gcc
		}
		t.Logf("%-16s %7.1f %7.1f %7.1f %7.1f", b.name, locked[b.name], c[b.ofC()], single[b.name], alone[b.ofC()])
		for _, x := range []struct {
			queues            string
			cost, budget, inC float64
		}{
			{"with locks", locked[b.name], b.locked, c[b.ofC()]},
			{"of one goroutine", single[b.name], b.single, alone[b.ofC()]},
		} {
			if x.cost == 0 || x.cost > x.budget {
				t.Errorf("%s, on queues %s: %.1f instructions, the budget is %.1f", b.name, x.queues, x.cost, x.budget)
			}
			if ratio := x.cost / x.inC; limit > 0 && ratio > limit {
				t.Errorf("%s, on queues %s: %.2f times C's, the limit is %.2f", b.name, x.queues, ratio, limit)
			}
		}
	}
}
