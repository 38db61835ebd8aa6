//go:build vm

package speed

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// ready begins a command with a wait for the device's port.
const ready = "until grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state; do sleep 0.1; done; "

// figures holds a program's output: lines with a name and a number.
type figures map[string]float64

// counting boots a guest with a software ConnectX whose clock counts instructions.
func counting(t *testing.T, memoryMB int) *vm.Guest {
	t.Helper()
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.InfiniBand})
	return vm.Start(t, vm.Config{Kernel: "6.12", Root: true, ICount: true, MemoryMB: memoryMB, VFIOUser: w.Sockets(),
		Modules: []string{"mlx5_ib"}})
}

// measure runs a program in the guest and parses its output.
func measure(t *testing.T, g *vm.Guest, command string) figures {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	out, err := g.CommandContext(ctx, "sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	f := figures{}
	for line := range strings.Lines(string(out)) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			t.Fatalf("%s printed %q", command, line)
		}
		f[name] = v
	}
	return f
}

// A budget is the maximum cost of a request in instructions, including the caller's
// loop, on queues with locks and on SingleGoroutine queues. inC is the name of the C
// program's figure for the same work, if it differs.
type budget struct {
	name           string
	locked, single float64
	inC            string
}

func (b *budget) ofC() string {
	if b.inC == "" {
		return b.name
	}
	return b.inC
}

// The figures are reproducible to a tenth, so the budgets are 3 % above them. Lower a
// budget when you make something faster.
var budgets = []budget{
	{"write", 181, 170, ""},
	{"inline", 212, 201, ""},
	{"list32", 77, 77, ""},
	{"list32inline", 105, 105, ""},
	{"builder32", 95, 95, "list32"},
	{"builder32inline", 118, 118, "list32inline"},
	{"calls32", 120, 120, "list32"},
	{"calls32inline", 159, 159, "list32inline"},
	{"recv", 128, 117, ""},
	{"recv32", 40, 40, ""},
	{"poll1", 169, 159, ""},
	{"poll32", 74, 73, ""},
	{"empty", 96, 86, ""},
	{"short1", 326, 316, ""},
	{"short32", 222, 222, ""},
	{"long1", 214, 203, ""},
	{"long32", 118, 117, ""},
}

// TestCost compares the costs of requests with their budgets, and prints them with
// those of C in the same guest.
func TestCost(t *testing.T) {
	g := counting(t, 0)
	goes := install(t, g, "bench/wrcost")
	t.Run("RC", func(t *testing.T) { testCost(t, g, goes) })
	t.Run("types", func(t *testing.T) { testTypeCost(t, g, goes) })
	t.Run("DC", func(t *testing.T) { testDCCost(t, g, goes) })
}

func testCost(t *testing.T, g *vm.Guest, goes string) {
	inC := costInC(t, g, "GOVERBS_SPEED_C", "testdata/wrcost.c")
	c := measure(t, g, ready+inC+" mlx5_0 1 6")
	alone := measure(t, g, "MLX5_SINGLE_THREADED=1 "+inC+" mlx5_0 1 6")
	check(t, budgets, measure(t, g, goes+" -rounds 6"), measure(t, g, goes+" -single -rounds 6"), c, alone)
	t.Logf("C's loop alone: %.1f", c["loop"])
}

// check compares the costs of requests with their budgets, and prints them: those of Go on queues with locks and of one
// goroutine, and those of C.
func check(t *testing.T, budgets []budget, locked, single, c, alone figures) {
	t.Helper()
	t.Logf("%-16s %7s %7s %7s %7s", "instructions", "Go", "C", "Go 1", "C 1")
	for _, b := range budgets {
		t.Logf("%-16s %7.1f %7.1f %7.1f %7.1f", b.name, locked[b.name], c[b.ofC()], single[b.name], alone[b.ofC()])
		for _, x := range []struct {
			queues       string
			cost, budget float64
		}{{"with locks", locked[b.name], b.locked}, {"of one goroutine", single[b.name], b.single}} {
			if x.cost == 0 || x.cost > x.budget {
				t.Errorf("%s, on queues %s: %.1f instructions, the budget is %.1f", b.name, x.queues, x.cost, x.budget)
			}
		}
	}
}

// costInC returns the command of a C program. Compiled with tcc, its loop around the
// library is slower than with other compilers. The environment variable names a program
// compiled by another one.
func costInC(t *testing.T, g *vm.Guest, env, source string, libs ...string) string {
	t.Helper()
	made := os.Getenv(env)
	if made == "" {
		return vm.BuildC(t, g, source, libs...)
	}
	path, err := g.Install(made)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func install(t *testing.T, g *vm.Guest, pkg string) string {
	t.Helper()
	path, err := g.Install(vm.BuildProgram(t, "github.com/goverbs/goverbs/"+pkg, "", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
