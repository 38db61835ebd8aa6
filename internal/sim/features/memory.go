package features

import (
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
)

// The name of machines in memory (package verbstest) in the tables, and the kernel whose commands they have.
const (
	Memory       = "memory"
	MemoryKernel = "7.2"
)

// inMemory is set in processes whose tests run on machines in memory.
var inMemory atomic.Bool

// UseMemory makes Here return Memory: the tests of the process run on machines in memory.
func UseMemory() { inMemory.Store(true) }

// envMemory has the link layer of machines in memory: "infiniband", or "" for Ethernet.
const envMemory = "GOVERBS_MEMORY"

// InfiniBand reports whether machines in memory shall have InfiniBand.
func InfiniBand() bool { return os.Getenv(envMemory) == "infiniband" }

// RunInfiniBand runs the tests TestDevice… of the process once more, on machines with InfiniBand.
func RunInfiniBand(t *testing.T) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestDevice")
	cmd.Env = append(os.Environ(), envMemory+"=infiniband")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// memoryTable has the features that machines in memory have and mlx5 does not have, or the opposite. They have the
// others as mlx5 has them.
var memoryTable = []rule{
	{Memory, PacketPacing, never, "package devx needs a real device"},
	{Memory, CMServices, never, "a network in memory has no subnet administrator"},
	{Memory, DevX, never, "package devx needs a real device"},
}
