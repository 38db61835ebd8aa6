//go:build vm && speed

package speed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// address brings up the network device of a software ConnectX with the address 10.9.0.1.
const address = "ulimit -l unlimited; ulimit -n 65536; ip link set lo up;" +
	" d=$(ls /sys/class/infiniband/mlx5_0/device/net); ip addr replace 10.9.0.1/24 dev $d; ip link set $d up; " + ready

// clientsGuest boots a guest for package rdma, libfabric and gRPC, whose clock counts instructions.
func clientsGuest(t *testing.T) (g *vm.Guest, grpc string) {
	t.Helper()
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
	g = vm.Start(t, vm.Config{Kernel: "6.12", Root: true, Fabric: true, ICount: true, MemoryMB: 6144,
		VFIOUser: w.Sockets(), Modules: []string{"mlx5_ib", "rdma_ucm"}})
	program := filepath.Join(t.TempDir(), "grpc")
	c := exec.CommandContext(t.Context(), "go", "build", "-C", "../../bench/grpc", "-ldflags=-s -w", "-o", program, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
	grpc, err := g.Install(program)
	if err != nil {
		t.Fatal(err)
	}
	return g, grpc
}

// TestClients compares idle clients of package rdma, with and without shared receives, with those of gRPC over TCP and
// of libfabric's RDM endpoints: their memory, the cost to connect, and the cost of a call beside them.
func TestClients(t *testing.T) {
	const many, few = 1000, 201 // an endpoint of libfabric takes 18 MB
	g, grpc := clientsGuest(t)
	program, fabric := install(t, g, "bench/clients"), vm.BuildC(t, g, "testdata/fabricclients.c", "fabric")
	for _, c := range []struct {
		name, program string
		n             int
	}{
		{"shared", "shared", many},
		{"gRPC", grpc, many},
		{"own", "own", many},
		{"libfabric", fmt.Sprintf("%s %d own", fabric, few), few},
		{"libfabric, shared", fmt.Sprintf("%s %d shared", fabric, few), few},
	} {
		f := measure(t, g, fmt.Sprintf("%s%s -addr 10.9.0.1 -n %d %s", address, program, c.n, c.program))
		t.Logf("%s, %d clients: %v", c.name, c.n, f)
		const idle, longest = 16 << 10, 1.2
		if p := f["server.pinned"]; c.name == "shared" && p > idle*1.05 {
			t.Errorf("%s: a client locks %.0f bytes at the server, not %d", c.name, p, idle)
		}
		if r := f["call.beside"] / f["call.alone"]; c.n == many && !(r <= longest) {
			t.Errorf("%s: a call beside %d idle clients takes %.3f times as many instructions", c.name, c.n, r)
		}
	}
}
