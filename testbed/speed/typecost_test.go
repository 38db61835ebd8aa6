//go:build vm

package speed

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// typeBudgets are the budgets of requests of UD and XRC, and of those that only RC has.
var typeBudgets = []budget{
	{"ud", 205, 193, ""},
	{"udinline", 251, 239, ""},
	{"udlist32", 92, 92, ""},
	{"udlist32inline", 136, 136, ""},
	{"udbuilder32", 150, 150, "udlist32"},
	{"udbuilder32inline", 177, 177, "udlist32inline"},
	{"xrc", 192, 181, ""},
	{"xrcinline", 226, 214, ""},
	{"xrclist32", 81, 81, ""},
	{"xrclist32inline", 110, 110, ""},
	{"xrcbuilder32", 128, 128, "xrclist32"},
	{"xrcbuilder32inline", 153, 153, "xrclist32inline"},
	{"atomic", 209, 198, ""},
	{"atomiclist32", 99, 99, ""},
	{"bind", 1143, 1132, ""},
	{"bindlist32", 926, 926, ""},
	{"localinv", 637, 626, ""},
	{"localinvlist32", 420, 420, ""},
	{"sendinv", 215, 203, ""},
	{"sendinvlist32", 98, 98, ""},
}

// testTypeCost is testCost for other types of QPs, and for other requests.
func testTypeCost(t *testing.T, g *vm.Guest, goes string) {
	inC := costInC(t, g, "GOVERBS_SPEED_TYPES", "testdata/typecost.c")
	c := measure(t, g, ready+inC+" mlx5_0 4")
	alone := measure(t, g, "MLX5_SINGLE_THREADED=1 "+inC+" mlx5_0 4")
	locked, single := measure(t, g, goes+" -types -rounds 4"), measure(t, g, goes+" -types -single -rounds 4")
	check(t, typeBudgets, locked, single, c, alone)
	t.Logf("C's loop alone: %.1f", c["loop"])
}
