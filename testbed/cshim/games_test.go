//go:build vm

package cshim_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/testbed/connectx/games"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/verbstest"
)

// Games beyond those of the guests: perftest that waits for events, and connected by rdma_cm.
var more = []games.Game{
	{Program: "ib_send_lat", Args: "-s 64 -n 50 -e", Core: true},
	{Program: "ib_write_lat", Args: "-s 64 -n 50 -R", Core: true},
	{Program: "ib_send_bw", Args: "-s 1024 -n 50 -R -c UD"},
}

// C's ping-pongs and perftest, which posts with ibv_wr_*, with each other: between two machines, and on one device.
func TestGames(t *testing.T) {
	t.Run("two_machines", func(t *testing.T) {
		for _, list := range [][]games.Game{games.Pingpongs, games.Perftests, more} {
			for _, g := range list {
				t.Run(g.String(), func(t *testing.T) {
					if !g.Core && g != games.EverySize {
						vm.SkipRepeat(t, "the program with other sizes")
					}
					n := verbstest.NewNetwork(t)
					play(t, g, "3", n, n.Machine(), n.Machine())
				})
			}
		}
	})
	t.Run("one_device", func(t *testing.T) {
		for _, g := range games.CoreOf(games.Pingpongs, games.Perftests) {
			t.Run(g.String(), func(t *testing.T) {
				n := verbstest.NewNetwork(t)
				m := n.Machine()
				play(t, g, "3", n, m, m)
			})
		}
	})
	t.Run("InfiniBand", func(t *testing.T) {
		for _, g := range games.CoreOf(games.Pingpongs, games.Perftests) {
			t.Run(g.String(), func(t *testing.T) {
				n := verbstest.NewNetwork(t, verbstest.InfiniBand())
				play(t, g, "0", n, n.Machine(), n.Machine())
			})
		}
	})
}

// play runs the two programs with an entry of the GID table: the server on m, the client on peer. Both must succeed.
func play(t *testing.T, g games.Game, gid string, n *verbstest.Network, m, peer *verbstest.Machine) {
	t.Helper()
	a := cshim.New(t, m)
	b := a
	if peer != m {
		b = cshim.New(t, peer)
	}
	args := append(strings.Fields(g.Args), "-d", m.Device(), "-p", freePort(t))
	if strings.HasPrefix(g.Program, "ibv_") {
		args = append(args, "-g", gid)
	} else {
		args = append(args, "-F", "-x", gid)
	}
	server := start(t, a.Command(g.Program, args...))
	client := func(host string) *exec.Cmd { return b.Command(g.Program, append(args, host)...) }
	var out string
	if strings.Contains(g.Args, "-R") { // rdma_cm instead of TCP
		out = connectTwice(t, n, a, m, client(m.Addr().String()))
	} else {
		out = retry(t, server, func() *exec.Cmd { return client("127.0.0.1") }, "Couldn't connect")
	}
	for _, text := range []string{out, server.finish(t)} {
		if games.Complaint.MatchString(text) {
			t.Errorf("it complains:\n%s", text)
		}
	}
	if figure := g.Figure(); !strings.Contains(out, figure) {
		t.Errorf("there is no %q in what it prints:\n%s", figure, out)
	}
}

// connectTwice runs perftest's client, and returns what it prints. With -R both ends connect twice: they exchange
// parameters on the first connection, then the server listens again. The client may be sooner; it crashes if its second
// request is rejected. Its requests are lost until the server listens, and its kernel repeats them.
func connectTwice(t *testing.T, n *verbstest.Network, server *cshim.Host, m *verbstest.Machine, c *exec.Cmd) string {
	t.Helper()
	listens := func(times int) {
		t.Helper()
		server.Await(func(s foreign.Stats) bool { return s.Listens >= times })
	}
	listens(1)
	n.SetTimeouts(verbstest.Timeouts{Reply: 50 * time.Millisecond, Repeats: 1000})
	ofRC := n.AddHandshakeFault(verbstest.HandshakeFault{Message: verbstest.REQ, To: m, Skip: 1, Action: verbstest.Drop})
	ofUD := n.AddHandshakeFault(verbstest.HandshakeFault{Message: verbstest.DatagramREQ, To: m, Action: verbstest.Drop})
	client := start(t, c)
	listens(2)
	ofRC()
	ofUD()
	return client.finish(t)
}
