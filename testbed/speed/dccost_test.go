//go:build vm

package speed

import (
	"testing"
)

// A dcBudget is a budget for requests of a DCI, and the maximum ratio to C's figure, or 0. A request of Go's list is
// compared with one of C's batch, because libmlx5 has no other interface for DC. The maxima are 0.8 for one request and
// 0.7 for a list if C is compiled by gcc. They are lower here, because tcc makes C's loop longer.
type dcBudget struct {
	budget
	ratio float64
}

var dcBudgets = []dcBudget{
	{budget{"write", 208, 198, ""}, 0.63},
	{budget{"inline", 235, 225, ""}, 0.64},
	{budget{"list32", 113, 113, ""}, 0.54},
	{budget{"list32inline", 139.5, 139.5, ""}, 0.568},
	{budget{"builder32", 166, 166, "list32"}, 0},
	{budget{"builder32inline", 192, 192, "list32inline"}, 0},
}

// TestDCCost compares the costs of requests of a DCI with their budgets and with those of C in the same guest, and
// prints them.
func TestDCCost(t *testing.T) {
	g := counting(t, 0)
	goes, inC := install(t, g, "bench/wrcost"), costInC(t, g, "GOVERBS_SPEED_DC", "testdata/dccost.c", "mlx5")
	c := measure(t, g, ready+inC+" mlx5_0 4")
	alone := measure(t, g, "MLX5_SINGLE_THREADED=1 "+inC+" mlx5_0 4")
	locked, single := measure(t, g, goes+" -dc -rounds 4"), measure(t, g, goes+" -dc -single -rounds 4")
	t.Logf("C's loop alone: %.1f for one request, %.1f in a list", c["loop1"], c["loop32"])
	t.Logf("%-16s %7s %7s %7s %7s", "instructions", "Go", "C", "Go 1", "C 1")
	for _, b := range dcBudgets {
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
			if ratio := x.cost / x.inC; b.ratio > 0 && ratio > b.ratio {
				t.Errorf("%s, on queues %s: %.2f times C's, the limit is %.2f", b.name, x.queues, ratio, b.ratio)
			}
		}
	}
}
