//go:build vm && !device

package valkey_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/testbed/vm"
)

// TestRXE runs the tests in a guest: server and clients use the kernel's rxe.
func TestRXE(t *testing.T) {
	tree, module, err := cshim.CompileValkey(t.TempDir())
	check(t, err)
	libs := filepath.Join(tree, "usr/lib/x86_64-linux-gnu")
	g := vm.Start(t, vm.Config{Kernel: "6.12", RXE: true, Root: true})
	program, err := g.Install(filepath.Join(tree, "usr/bin/valkey-server"), module,
		filepath.Join(libs, "libjemalloc.so.2"), filepath.Join(libs, "liblzf.so.1"), filepath.Join(libs, "libatomic.so.1"))
	check(t, err)
	dir := filepath.Dir(program)
	argv := append([]string{"/usr/bin/env", "LD_LIBRARY_PATH=" + dir,
		"LD_PRELOAD=" + dir + "/valkey-rdma.so", program}, cshim.ValkeyArgs(dir+"/valkey-rdma.so")...)
	binary := vm.BuildTest(t, "github.com/goverbs/goverbs/testbed/valkey", "device", "amd64")
	args := []string{"-test.short"}
	if bench := os.Getenv("GOVERBS_BENCH"); bench != "" { // measures on the same guest
		args = append(args, "-test.run=^$", "-test.bench="+bench)
	}
	vm.RunTests(t, g, binary, vm.TestOptions{Timeout: 5 * time.Minute, Args: args,
		Env: []string{"GOVERBS_DEVICE=rxe0", "GOVERBS_VALKEY=" + strings.Join(argv, "\n")}})
}
