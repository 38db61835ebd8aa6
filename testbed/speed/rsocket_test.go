//go:build vm

package speed

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// TestRsocketMemory checks that an idle rsocket takes no more memory than in C, no thread and no goroutine, and one
// descriptor.
func TestRsocketMemory(t *testing.T) {
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, MemoryMB: 1024, VFIOUser: w.Sockets(),
		Modules: []string{"mlx5_ib", "rdma_ucm"}})
	goes, inC := install(t, g, "bench/rsocketmem"), vm.BuildC(t, g, "testdata/rsockets.c")
	const up = "ulimit -l unlimited; ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net);" +
		" ip addr replace 10.9.0.1/24 dev $d; ip link set $d up; " + ready
	const sockets = 100.0
	c := measure(t, g, up+fmt.Sprintf("timeout 300 %s 10.9.0.1 %.0f", inC, sockets))
	ours := measure(t, g, up+fmt.Sprintf("timeout 300 %s -addr 10.9.0.1 -n %.0f", goes, sockets))
	for _, what := range []string{"rss", "mapped", "mappings", "files", "threads", "goroutines"} {
		t.Logf("%-10s Go %9.3f  C %9.3f", what, ours["rsocket."+what], c["rsocket."+what])
	}
	if a, b := ours["rsocket.rss"], c["rsocket.rss"]; a == 0 || a > b {
		t.Errorf("an rsocket takes %.0f bytes, C's %.0f", a, b)
	}
	const some = 0.1 // some are created for all
	for what, most := range map[string]float64{"files": 1 + some, "threads": some, "goroutines": some} {
		if n := ours["rsocket."+what]; n > most {
			t.Errorf("each rsocket has %.3f %s", n, what)
		}
	}
}
