//go:build vm

package s3

import (
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// TestConnectX stores and reads 64 MiB with minio-go and each form of the wire, and 1 GiB if GOVERBS_TEST=all. The
// server has an object of parts up to four times while it puts them together.
func TestConnectX(t *testing.T) {
	c := vm.Config{MemoryMB: 2048}
	o := vm.TestOptions{Args: []string{"-test.run=^TestDeviceGigabyte$"}, Timeout: time.Hour}
	if os.Getenv(vm.EnvTest) == "all" {
		c.MemoryMB, o.Env = 7168, []string{"GOMEMLIMIT=5GiB"}
	} else {
		o.Args = append(o.Args, "-test.short")
	}
	vm.RunTests(t, start(t, c), vm.BuildTest(t, "../../s3rdma", "device", "amd64"), o)
}

// start boots a guest with a software ConnectX.
func start(t *testing.T, c vm.Config) *vm.Guest {
	t.Helper()
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
	c.Kernel, c.Root, c.VFIOUser, c.Modules = "6.12", true, w.Sockets(), []string{"mlx5_ib"}
	g := vm.Start(t, c)
	program.Run(t, g, "sh", "-e", "-c", "ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net);"+
		" ip addr add 10.9.0.1/24 dev $d; ip link set $d up")
	program.Until(t, g, "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
	return g
}
