//go:build vm && speed

package speed

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// rdmaRatios are the most that an operation of package rdma may cost, relative to the same work on package cm. The
// receiver of a message of 1 MiB that is offered wakes once more than that of one that has a receive.
var rdmaRatios = map[string]float64{"read": 1.15, "write": 1.15, "small": 1.20, "large": 1.08, "offered": 1.18}

// TestRDMACost compares package rdma with the same work on package cm, by instructions.
func TestRDMACost(t *testing.T) {
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, ICount: true, MemoryMB: 1024, VFIOUser: w.Sockets(),
		Modules: []string{"mlx5_ib", "rdma_ucm"}})
	program := install(t, g, "bench/rdmacost")
	command := "ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net);" +
		" ip addr replace 10.9.0.1/24 dev $d; ip link set $d up; " + ready + program + " -addr 10.9.0.1 -only "
	best := map[string]float64{}
	above := slices.Sorted(maps.Keys(rdmaRatios))
	for range rdmaAttempts {
		f := measure(t, g, command+strings.Join(above, ","))
		for _, name := range above {
			rdma, cm := f[name+"_rdma"], f[name+"_cm"]
			if rdma == 0 || cm == 0 {
				t.Fatalf("%s is not measured", name)
			}
			t.Logf("%-8s rdma %8.0f  cm %8.0f  ratio %.3f", name, rdma, cm, rdma/cm)
			if r := rdma / cm; best[name] == 0 || r < best[name] {
				best[name] = r
			}
		}
		if above = aboveRDMARatios(best); len(above) == 0 {
			return
		}
	}
	for _, name := range above {
		t.Errorf("%s: the lowest ratio is %.3f, the limit %.2f", name, best[name], rdmaRatios[name])
	}
}

// rdmaAttempts is how often an operation is measured at most. How long one polls before it sleeps depends on the load
// of the machine on which the device runs, so that both figures of a run may be twice those of another.
const rdmaAttempts = 3

// aboveRDMARatios returns the operations that cost more than they may.
func aboveRDMARatios(best map[string]float64) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(rdmaRatios)), func(name string) bool {
		return best[name] <= rdmaRatios[name]
	})
}
