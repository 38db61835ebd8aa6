//go:build vm && soak

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// TestSoak runs the directory in guests without Go.
func TestSoak(t *testing.T) {
	dir := t.TempDir()
	t.Chdir("..")
	if err := build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	t.Run("rxe0", func(t *testing.T) {
		g := vm.Start(t, vm.Config{Kernel: "6.12", RXE: true, Root: true, CPUs: 2, Share: dir})
		test(t, g, "-device", "rxe0", "-address", "10.9.0.1", "-disturb")
	})
	t.Run("siw0", func(t *testing.T) {
		g := vm.Start(t, vm.Config{Kernel: "6.12-siw", SIW: true, Root: true, CPUs: 2, Share: dir})
		test(t, g, "-device", "siw0", "-address", "10.9.0.1")
	})
	for link, layer := range map[string]connectx.LinkLayer{"roce": connectx.Ethernet, "ib": connectx.InfiniBand} {
		t.Run("mlx5_0/"+link, func(t *testing.T) {
			w := world.StartTest(t, world.Config{LinkLayer: layer, Devices: 2,
				Violation: func(device string, v engine.Violation) {
					if !slices.Contains(broken, v.Rule) {
						t.Errorf("%s: %s", device, world.Describe(v))
					}
				}})
			g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, CPUs: 2, Share: dir, VFIOUser: w.Sockets(),
				Modules: []string{"mlx5_ib", "ib_umad", "rdma_ucm"}})
			program.Run(t, g, "sh", "-e", "-c", ready)
			args := []string{"-device", "mlx5_0"}
			if layer == connectx.Ethernet {
				args = append(args, "-address", "10.9.0.1", "-server", "mlx5_1")
			}
			test(t, g, args...)
		})
	}
}

// broken lists the rules that some tests break on purpose. testbed/kernels has the
// list of these tests, and fails if other tests break a rule.
var broken = []engine.Rule{engine.RuleKey, engine.RuleCQOverrun, engine.RuleBlueFlame}

// ready assigns addresses to the devices' interfaces and waits for their ports.
const ready = `ip link set lo up
n=1
for d in mlx5_0 mlx5_1; do
	for i in $(ls /sys/class/infiniband/$d/device/net 2>/dev/null); do
		ip link set $i up
		ip addr add 10.9.0.$n/24 dev $i
	done
	n=$((n+1))
done
for d in mlx5_0 mlx5_1; do
	for i in $(seq 300); do
		grep -q ACTIVE /sys/class/infiniband/$d/ports/1/state && test -z "$(ip -6 addr show tentative)" && break
		sleep 0.1
	done
	grep -q ACTIVE /sys/class/infiniband/$d/ports/1/state
done`

func test(t *testing.T, g *vm.Guest, args ...string) {
	t.Helper()
	p := program.StartFor(t, limit, g, "/share/hardware", append(args, "-quick", "-report", "/tmp/report.txt")...)
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", p, err, program.Run(t, g, "cat", "/tmp/report.txt"))
	}
	if out := p.Stdout.String(); !strings.Contains(out, "0 fail") || !strings.Contains(out, "typical") {
		t.Errorf("no tests or no figures:\n%s", out)
	}
}
