//go:build vm && speed

package speed

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

const (
	rounds  = 5
	address = "10.9.0.1"
	longest = 3 * time.Minute // of a run
)

// kernel is that of the guests.
func kernel() string {
	if k := os.Getenv("GOVERBS_SPEED_KERNEL"); k != "" {
		return k
	}
	return "6.12"
}

func start(t *testing.T) *vm.Guest {
	return vm.Start(t, vm.Config{Kernel: kernel(), Root: true, RXE: true})
}

// pair is a shell script that runs a server, waits until it listens, and runs
// its client.
func pair(ctx context.Context, g *vm.Guest, server, client string) *vm.Cmd {
	return g.CommandContext(ctx, "sh", "-c", `
`+server+` >/dev/null 2>&1 & server=$!
until rdma resource show cm_id | grep -q LISTEN; do kill -0 $server || exit 1; done
`+client+` || exit 1
kill $server 2>/dev/null
wait $server
true`)
}

// run runs a pair and returns what it printed and how long it took.
func run(t *testing.T, g *vm.Guest, server, client string) (string, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	began := time.Now()
	out, err := pair(ctx, g, server, client).CombinedOutput()
	if err != nil {
		t.Fatalf("%s; %s: %v\n%s", server, client, err, out)
	}
	return string(out), time.Since(began)
}

// TestRping compares round trips: a READ, a WRITE and three messages each.
func TestRping(t *testing.T) {
	g := start(t)
	rping := install(t, g, "examples/rping")
	program := func(name, path string, count int) vm.Program {
		return vm.Program{Name: name, Run: func(context.Context) (float64, error) {
			n := strconv.Itoa(count)
			_, took := run(t, g, path+" -s -a "+address, path+" -c -a "+address+" -C "+n)
			return float64(took.Microseconds()) / float64(count), nil
		}}
	}
	for _, count := range []int{1, 3000} { // what starting takes, and the rest
		r, err := vm.Alternate(t.Context(), program("Go rping", rping, count), program("C rping", "rping", count), rounds)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d round trips, us each:\n%s", count, text(r))
	}
}

// A column of cmtime's report.
var column = regexp.MustCompile(`(?m)^([a-z ]+?) +\d+ +(\d+)`)

// TestCmtime compares the steps of connecting 1000 ids.
func TestCmtime(t *testing.T) {
	g := start(t)
	cmtime := install(t, g, "bench/cmtime")
	figures := map[string]map[string][]float64{}
	program := func(name, path string) vm.Program {
		figures[name] = map[string][]float64{}
		return vm.Program{Name: name, Run: func(context.Context) (float64, error) {
			const count = " -c 1000"
			out, _ := run(t, g, path+" -b "+address+count, "("+path+" -b "+address+" -s "+address+count+" || true)")
			_, out, found := strings.Cut(out, "qp_conn")
			if !found {
				return 0, fmt.Errorf("no report in\n%s", out)
			}
			out, _, _ = strings.Cut(out, "without QPs") // C's next test
			var total float64
			for _, m := range column.FindAllStringSubmatch(out, -1) {
				us, err := strconv.ParseFloat(m[2], 64)
				if err != nil {
					return 0, err
				}
				figures[name][m[1]] = append(figures[name][m[1]], us)
				if m[1] == "full connect" {
					total = us
				}
			}
			return total, nil
		}}
	}
	r, err := vm.Alternate(t.Context(), program("Go cmtime", cmtime), program("C cmtime", "cmtime"), rounds)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("full connect, us for 1000:\n%s", text(r))
	for _, step := range []string{"create id", "bind addr", "resolve addr", "resolve route", "create qp", "init qp", "cm connect", "disconnect", "destroy id", "destroy qp"} {
		a, b := figures["Go cmtime"][step], figures["C cmtime"][step]
		if len(a) != rounds || len(b) != rounds {
			t.Errorf("%s: %d and %d figures", step, len(a), len(b))
			continue
		}
		r := vm.Report{A: vm.Figures{Name: "Go " + step, Values: a}, B: vm.Figures{Name: "C " + step, Values: b}}
		t.Logf("\n%s", text(r))
	}
}

func text(r vm.Report) string {
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		return err.Error()
	}
	return b.String()
}
