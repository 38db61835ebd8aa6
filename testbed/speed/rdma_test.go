//go:build vm

package speed

import (
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
	f := measure(t, g, "ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net);"+
		" ip addr add 10.9.0.1/24 dev $d; ip link set $d up; "+ready+program+" -addr 10.9.0.1")
	for name, most := range rdmaRatios {
		t.Logf("%-6s rdma %8.0f  cm %8.0f  ratio %.3f", name, f[name+"_rdma"], f[name+"_cm"], f[name+"_ratio"])
		if r := f[name+"_ratio"]; r == 0 || r > most {
			t.Errorf("%s: the ratio is %.3f, the limit %.2f", name, r, most)
		}
	}
}
