//go:build vm

package speed

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// TestRsocketMemory checks that an idle rsocket takes no more memory than in C, and no descriptor, thread or goroutine.
func TestRsocketMemory(t *testing.T) {
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, MemoryMB: 1024, VFIOUser: w.Sockets(),
		Modules: []string{"mlx5_ib", "rdma_ucm"}})
	goes, inC := install(t, g, "bench/rsocketmem"), vm.BuildC(t, g, "testdata/rsockets.c")
	const up = "ulimit -l unlimited; ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net);" +
		" ip addr replace 10.9.0.1/24 dev $d; ip link set $d up; " + ready
	c := measure(t, g, up+"timeout 300 "+inC+" 10.9.0.1 100")
	ours := measure(t, g, up+"timeout 300 "+goes+" -addr 10.9.0.1 -n 100")
	for _, what := range []string{"rss", "mapped", "mappings", "files", "threads", "goroutines"} {
		t.Logf("%-10s Go %9.3f  C %9.3f", what, ours["rsocket."+what], c["rsocket."+what])
	}
	if a, b := ours["rsocket.rss"], c["rsocket.rss"]; a == 0 || a > b {
		t.Errorf("an rsocket takes %.0f bytes, C's %.0f", a, b)
	}
	for _, what := range []string{"files", "threads", "goroutines"} {
		if n := ours["rsocket."+what]; n > 0.1 { // some are created for all
			t.Errorf("each rsocket has %.3f %s", n, what)
		}
	}
}
