//go:build vm && !device

package valkey_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// TestRXE runs the tests in a guest: server and clients use the kernel's rxe.
func TestRXE(t *testing.T) {
	testGuest(t, vm.Start(t, vm.Config{Kernel: "6.12", RXE: true, Root: true}))
}

// TestConnectX is TestRXE on a software ConnectX.
func TestConnectX(t *testing.T) {
	vm.SkipRepeat(t, "TestRXE")
	testGuest(t, startConnectX(t, vm.Config{}))
}

// startRXE boots a guest with rxe, whose address is 10.9.0.1.
func startRXE(t *testing.T, c vm.Config) *vm.Guest {
	t.Helper()
	c.Kernel, c.Root, c.RXE = "6.12", true, true
	return vm.Start(t, c)
}

// startConnectX boots a guest with a software ConnectX, whose address is 10.9.0.1.
func startConnectX(t *testing.T, c vm.Config) *vm.Guest {
	t.Helper()
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
	c.Kernel, c.Root, c.VFIOUser, c.Modules = "6.12", true, w.Sockets(), []string{"mlx5_ib", "rdma_ucm"}
	g := vm.Start(t, c)
	program.Run(t, g, "sh", "-e", "-c", "ip link set lo up; d=$(ls /sys/class/infiniband/mlx5_0/device/net);"+
		" ip addr add 10.9.0.1/24 dev $d; ip link set $d up")
	program.Until(t, g, "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
	return g
}

func testGuest(t *testing.T, g *vm.Guest) {
	server := installServer(t, g)
	binary := vm.BuildTest(t, "github.com/goverbs/goverbs/testbed/valkey", "device", "amd64")
	vm.RunTests(t, g, binary, vm.TestOptions{Timeout: 5 * time.Minute, Args: []string{"-test.short"},
		Env: []string{"GOVERBS_VALKEY=" + strings.Join(server, "\n")}})
}

// installServer installs Valkey's server in a guest. It returns the command that runs it at 10.9.0.1, with RDMA at port
// 6379.
func installServer(t *testing.T, g *vm.Guest) []string {
	t.Helper()
	tree, module, err := cshim.CompileValkey(t.TempDir())
	check(t, err)
	libs, err := filepath.Glob(filepath.Join(tree, "usr/lib/x86_64-linux-gnu/lib*.so.?"))
	check(t, err)
	server, err := g.Install(filepath.Join(tree, "usr/bin/valkey-server"), append(libs, module)...)
	check(t, err)
	dir := filepath.Dir(server)
	module = filepath.Join(dir, filepath.Base(module))
	return append(append([]string{"/usr/bin/env", "LD_LIBRARY_PATH=" + dir, "LD_PRELOAD=" + module, server},
		cshim.ValkeyArgs(module)...), "--rdma-bind", "10.9.0.1", "--rdma-port", "6379")
}
