//go:build vm

package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// mlx5Pingpongs are run on the software ConnectX, with the same programs but another
// provider than on rxe.
var mlx5Pingpongs = []game{
	{rcPingpong, 1, 200, 1, ""},
	{rcPingpong, 4096, 200, 1, "-e"},
	{rcPingpong, 65536, 50, 1, "-e -r2"},
	{rcPingpong, 1 << 20, 10, 1, "-e"},
	{rcPingpong, 4096, 100, 1, "-N"},
	{ucPingpong, 1, 100, 1, ""},
	{ucPingpong, 4096, 100, 1, "-er2"},
	{udPingpong, 1, 100, 1, ""},
	{udPingpong, 1024, 100, 1, "-er2"},
	{srqPingpong, 1, 100, 1, "-q1"},
	{srqPingpong, 4096, 200, 16, "-e"},
}

// TestConnectX runs the programs on mlx5_0, a software ConnectX.
func TestConnectX(t *testing.T) {
	files := programs(t)
	for _, p := range []struct {
		kernel, link string
		layer        connectx.LinkLayer
		repeats      string
	}{
		{"6.12", "roce", connectx.Ethernet, "TestInterop/6.12, and testbed/connectx/judge"},
		{"6.12", "ib", connectx.InfiniBand, "6.12/roce"},
		{"6.1", "roce", connectx.Ethernet, ""},
		{"7.2", "roce", connectx.Ethernet, ""},
	} {
		t.Run(p.kernel+"/"+p.link, func(t *testing.T) {
			brief := p.kernel != "6.12"
			if brief {
				vm.SkipRepeat(t, "6.12/"+p.link)
			}
			h := newConnectX(t, p.kernel, p.layer, files)
			h.brief, h.repeats = brief, p.repeats
			h.play(t, goPairs[2], mlx5Pingpongs[0]) // the driver creates a QP for memory keys when it first needs one
			before := h.resources(t)
			t.Run("devinfo", h.testDevinfo)
			h.testMlx5Pingpongs(t)
			if p.layer == connectx.Ethernet {
				t.Run("cm", func(t *testing.T) {
					h.testCMCases(t, []cmCase{rpingCases[0], rpingCases[1], ucmatoseCases[1], udaddyCases[1], rdmaServerCases[0]})
				})
				t.Run("xrc", h.testXRC)
				t.Run("rsocket", h.testRsocket)
				t.Run("preload", h.testPreload)
				t.Run("udpong", h.testUdpong)
			} else {
				t.Run("gid", h.testGIDs)
			}
			h.leavesNothing(t, before)
		})
	}
}

// newConnectX boots a guest with our programs and a software ConnectX, and gives it addresses.
func newConnectX(t *testing.T, kernel string, layer connectx.LinkLayer, files map[string]string) *host {
	t.Helper()
	w := world.StartTest(t, world.Config{LinkLayer: layer, Devices: 1})
	h := newHost(t, vm.Config{Kernel: kernel, Root: true, Preload: true, VFIOUser: w.Sockets(),
		Modules: []string{"mlx5_ib", "ib_umad", "rdma_ucm"}}, files)
	h.device, h.driver, h.gid = "mlx5_0", "mlx5", -1
	h.output(t, "ip", "link", "set", "lo", "up")
	// The client connects to this address in either mode.
	netdev := "lo"
	if layer == connectx.Ethernet {
		netdev = "d0"
		name := strings.TrimSpace(h.output(t, "ls", "/sys/class/infiniband/mlx5_0/device/net"))
		h.output(t, "ip", "link", "set", name, "name", netdev)
		h.output(t, "ip", "link", "set", netdev, "up")
	}
	h.output(t, "ip", "addr", "add", address+"/24", "dev", netdev)
	h.output(t, "sh", "-c", "for i in $(seq 200); do grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state &&"+
		" exit 0; sleep 0.1; done; exit 1")
	if layer == connectx.Ethernet {
		h.addresses(t)
	}
	return h
}

// testMlx5Pingpongs runs mlx5Pingpongs.
func (h *host) testMlx5Pingpongs(t *testing.T) {
	for _, g := range mlx5Pingpongs {
		if h.brief && g.size != 1 {
			continue
		}
		for _, pair := range goPairs {
			t.Run(fmt.Sprintf("%s %s size=%d/%v", g.program, g.args, g.size, pair), func(t *testing.T) {
				skipAlike(t, pair, false)
				h.skipRepeat(t, g.size == 1 || g.size == 1<<20)
				h.play(t, pair, g)
			})
		}
	}
}
