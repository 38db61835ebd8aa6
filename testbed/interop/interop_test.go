//go:build vm

package interop

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

func TestInterop(t *testing.T) {
	files := programs(t)
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			brief := kernel != "6.12"
			if brief {
				vm.SkipRepeat(t, "6.12")
			}
			h := newHost(t, vm.Config{Kernel: kernel, Root: true, Preload: true, RXE: true}, files)
			h.brief = brief
			h.addresses(t)
			before := h.resources(t)
			t.Run("devinfo", h.testDevinfo)
			t.Run("asyncwatch", h.testAsyncwatch)
			t.Run("rc_pingpong", func(t *testing.T) { h.testRCPingpong(t, 4096, goPairs...) })
			if !h.brief {
				t.Run("rc_pingpong_mistakes", h.testMistakes)
			}
			t.Run("pingpong", h.testPingpong)
			t.Run("cm", h.testCM)
			t.Run("mckey", h.testMckey)
			t.Run("udpong", h.testUdpong)
			t.Run("rsocket", h.testRsocket)
			t.Run("preload", h.testPreload)
			h.leavesNothing(t, before)
		})
	}
}

// leavesNothing checks that no object is left that did not exist before. The kernel
// may take a moment to destroy the objects of the last process.
func (h *host) leavesNothing(t *testing.T, before string) {
	t.Helper()
	d := cmp.Diff(before, h.resources(t))
	for i := 0; i < 100 && d != ""; i++ {
		d = cmp.Diff(before, h.resources(t))
	}
	if d != "" {
		t.Errorf("objects are left: (-before +after)\n%s", d)
	}
}

// TestARM64 has our program on both ends. That guest has neither C programs nor a
// tool to raise the MTU of its network device.
func TestARM64(t *testing.T) {
	vm.SkipRepeat(t, "the device tests of uverbs on arm64 (testbed/kernels)")
	const name = rcPingpong
	h := newHost(t, vm.Config{Kernel: "6.12", Arch: "arm64", RXE: true},
		map[string]string{name: vm.BuildProgram(t, module+ours[name], "", "arm64")})
	h.testRCPingpong(t, 1024, pair{goSide, goSide})
}

// A host is a guest with the programs under test.
type host struct {
	guest    *vm.Guest
	device   string
	driver   string
	ours     map[string]string // C program to path of our program
	gid      int               // index of the device's IPv4 GID, for the C programs; -1 without GIDs
	nextPort int               // of TCP or of a port space; each run uses its own port
	brief    bool              // skip tests that do not depend on the kernel and run on another one
	repeats  string            // where make test runs the same tests, or ""
}

// newHost boots a guest with our programs.
func newHost(t *testing.T, config vm.Config, files map[string]string) *host {
	t.Helper()
	h := &host{guest: boot(t, config), device: "rxe0", driver: "rxe", ours: map[string]string{}, nextPort: 18515}
	for name, file := range files {
		h.ours[name] = install(t, h.guest, file)
	}
	return h
}

// skipRepeat skips a test that h.repeats has as well (vm.SkipRepeat), unless it is one of the few that run on this
// device, too.
func (h *host) skipRepeat(t *testing.T, selected bool) {
	t.Helper()
	if h.repeats != "" && !selected {
		vm.SkipRepeat(t, h.repeats)
	}
}

// port returns a port that no run has used.
func (h *host) port() string {
	h.nextPort++
	return strconv.Itoa(h.nextPort - 1)
}

// boot starts a guest that ends with the test. At that time its kernel must not have
// reported any trouble.
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

// The addresses of d0, and so of rxe0.
const (
	address  = "10.9.0.1"
	address6 = "fd00:9::1"
)

// addresses gives d0 an MTU for path MTUs up to 4096, an IPv6 address beside
// the link-local one, and a route for multicast groups.
func (h *host) addresses(t *testing.T) {
	t.Helper()
	for _, args := range []string{"link set d0 mtu 9000", "-6 addr add " + address6 + "/64 dev d0 nodad",
		"route add 239.0.0.0/8 dev d0"} {
		h.output(t, "ip", strings.Fields(args)...)
	}
	h.gid = h.gidIndex(t, "::ffff:"+address)
	h.gidIndex(t, address6)
}

// gidIndex returns the index of a GID, as printed by our devinfo. It waits, because
// the kernel may not have added the GID yet.
func (h *host) gidIndex(t *testing.T, gid string) int {
	t.Helper()
	for range 100 {
		out := h.output(t, h.ours["ibv_devinfo"], "-json")
		var devices []struct {
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
			if g.GID == gid && g.Type == "RoCE v2" && g.Netdev == "d0" {
				return g.Index
			}
		}
	}
	t.Fatalf("%s has no GID %s", h.device, gid)
	return -1
}

// output runs a command, which must succeed, and returns its output.
func (h *host) output(t *testing.T, name string, args ...string) string {
	t.Helper()
	return program.Run(t, h.guest, name, args...)
}

// start starts a program. It is killed at the end of the test if it still runs.
func (h *host) start(t *testing.T, name string, args ...string) *program.Process {
	t.Helper()
	return program.Start(t, h.guest, name, args...)
}

// resources returns the number of the device's objects by kind.
func (h *host) resources(t *testing.T) string {
	t.Helper()
	return h.output(t, "rdma", "-j", "-p", "resource", "show")
}
