//go:build vm

package gvisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// TestPrograms runs devinfo, and two rcpingpong that communicate, in a sandbox of a guest with a software ConnectX.
// TestProxied of package mlx5 lists which commands the proxy forwards.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	vm.BuildPrograms(t, dir, "amd64", "gvisor.dev/gvisor/runsc", "github.com/goverbs/goverbs/cmd/devinfo",
		"github.com/goverbs/goverbs/cmd/rcpingpong")
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.Ethernet})
	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, MemoryMB: 2048, Share: dir, VFIOUser: w.Sockets(),
		Modules: []string{"mlx5_ib"}})
	out := program.Run(t, g, "sh", "-e", "/share/host.sh")
	t.Logf("%s", out)
	for _, want := range []string{"hca_id:\tmlx5_0", "PORT_ACTIVE", "server: 100 iters", "client: 100 iters"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if log, err := os.ReadFile(filepath.Join(dir, "boot.log")); t.Failed() {
		t.Logf("the sandbox: %v\n%s", err, log)
	}
}
