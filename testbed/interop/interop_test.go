//go:build vm

package interop

import (
	"context"
	"encoding/json"
	"regexp"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

func TestInterop(t *testing.T) {
	const module = "github.com/goverbs/goverbs/"
	pingpong := vm.BuildProgram(t, module+"examples/rcpingpong", "", "amd64")
	devinfo := vm.BuildProgram(t, module+"cmd/devinfo", "", "amd64")
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			g := boot(t, vm.Config{Kernel: kernel, Root: true, RXE: true})
			if out, err := g.Command("ip", "link", "set", "d0", "mtu", "9000").CombinedOutput(); err != nil {
				t.Fatalf("ip: %v: %s", err, out) // for path MTUs up to 4096
			}
			h := &host{guest: g, pingpong: install(t, g, pingpong), devinfo: install(t, g, devinfo), nextPort: 18515}
			h.gid = h.gidIndex(t)
			t.Run("devinfo", h.testDevinfo)
			t.Run("rc_pingpong", func(t *testing.T) {
				h.testPingpong(t, 4096, pair{goSide, cSide}, pair{cSide, goSide}, pair{goSide, goSide})
			})
			t.Run("rc_pingpong_mistakes", h.testMistakes)
		})
	}
}

// TestARM64 has our program alone on both ends: there is no C program for that
// guest, nor a tool to raise the MTU of its network device.
func TestARM64(t *testing.T) {
	pingpong := vm.BuildProgram(t, "github.com/goverbs/goverbs/examples/rcpingpong", "", "arm64")
	g := boot(t, vm.Config{Kernel: "6.12", Arch: "arm64", RXE: true})
	h := &host{guest: g, pingpong: install(t, g, pingpong), nextPort: 18515}
	h.testPingpong(t, 1024, pair{goSide, goSide})
}

// A host is a guest with the programs under test.
type host struct {
	guest    *vm.Guest
	pingpong string // path of rcpingpong
	devinfo  string // path of devinfo
	gid      int    // index of rxe0's IPv4 GID, for the C programs
	nextPort int    // of TCP: each run has its own
}

// boot starts a guest that ends with the test. Its kernel must have had no
// trouble then.
func boot(t *testing.T, config vm.Config) *vm.Guest {
	t.Helper()
	g := vm.Start(t, config)
	t.Cleanup(func() { checkLog(t, g) })
	return g
}

func checkLog(t *testing.T, g *vm.Guest) {
	t.Helper()
	log, err := g.Dmesg(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Error(err)
		return
	}
	if bad := regexp.MustCompile(`(?m)^.*(WARNING:|BUG:|Call Trace).*$`).FindString(log); bad != "" {
		t.Errorf("the kernel complained: %s", bad)
	}
}

func install(t *testing.T, g *vm.Guest, file string) string {
	t.Helper()
	path, err := g.Install(file)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// gidIndex asks our own program for the index that the C programs need.
func (h *host) gidIndex(t *testing.T) int {
	t.Helper()
	out := h.output(t, h.devinfo, "-json")
	var devices []struct {
		Name  string
		Ports []struct {
			GIDs []struct {
				Index             int
				GID, Type, Netdev string
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &devices); err != nil || len(devices) != 1 || len(devices[0].Ports) != 1 {
		t.Fatalf("devinfo -json: %v\n%s", err, out)
	}
	for _, g := range devices[0].Ports[0].GIDs {
		if g.GID == "::ffff:10.9.0.1" && g.Type == "RoCE v2" && g.Netdev == "d0" {
			return g.Index
		}
	}
	t.Fatalf("no GID of 10.9.0.1 in\n%s", out)
	return -1
}
