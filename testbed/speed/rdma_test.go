//go:build vm

package speed

import (
	"maps"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// rdmaRatios are the most that an operation of package rdma may cost, relative to the same work on package cm: what is
// wanted, and a tenth for the wake-ups that differ from run to run. A message of 1 MiB that is offered wakes the
// receiver once more than one for which there is a receive.
var rdmaRatios = map[string]float64{"read": 1.2, "write": 1.2, "small": 1.35, "large": 1.15, "offered": 1.25}

// TestRDMACost compares package rdma with the same work on package cm, by instructions.
func TestRDMACost(t *testing.T) {
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, ICount: true, MemoryMB: 1024, VFIOUser: w.Sockets(),
		Modules: []string{"mlx5_ib", "rdma_ucm"}})
	program := install(t, g, "bench/rdmacost")
	command := "ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net);" +
		" ip addr replace 10.9.0.1/24 dev $d; ip link set $d up; " + ready + program + " -addr 10.9.0.1"
	f := figures{}
	for range rdmaAttempts {
		f.lower(measure(t, g, command))
		if len(aboveRDMARatios(f)) == 0 {
			break
		}
	}
	for name := range rdmaRatios {
		t.Logf("%-8s rdma %8.0f  cm %8.0f  ratio %.3f", name, f[name+"_rdma"], f[name+"_cm"], rdmaRatio(f, name))
	}
	for _, name := range aboveRDMARatios(f) {
		t.Errorf("%s: the ratio is %.3f, the limit %.2f", name, rdmaRatio(f, name), rdmaRatios[name])
	}
}

// rdmaAttempts is how often operations are measured at most. How long one polls before it sleeps depends on the load of
// the machine on which the device runs, and a level may be lucky in all of its rounds when the other is in none.
const rdmaAttempts = 4

// aboveRDMARatios returns the operations that cost more than they may, or that were not measured.
func aboveRDMARatios(f figures) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(rdmaRatios)), func(name string) bool {
		return f[name+"_rdma"] > 0 && f[name+"_cm"] > 0 && rdmaRatio(f, name) <= rdmaRatios[name]
	})
}

func rdmaRatio(f figures, name string) float64 { return f[name+"_rdma"] / f[name+"_cm"] }

// lower replaces figures by those of another run that are lower or new.
func (f figures) lower(other figures) {
	for name, v := range other {
		if old, ok := f[name]; !ok || v < old {
			f[name] = v
		}
	}
}
