//go:build vm

package cshim_test

import (
	"os/exec"
	"strings"
	"testing"

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
					play(t, g, "3", n.Machine(), n.Machine())
				})
			}
		}
	})
	t.Run("one_device", func(t *testing.T) {
		for _, g := range games.CoreOf(games.Pingpongs, games.Perftests) {
			t.Run(g.String(), func(t *testing.T) {
				m := verbstest.NewNetwork(t).Machine()
				play(t, g, "3", m, m)
			})
		}
	})
	t.Run("InfiniBand", func(t *testing.T) {
		for _, g := range games.CoreOf(games.Pingpongs, games.Perftests) {
			t.Run(g.String(), func(t *testing.T) {
				n := verbstest.NewNetwork(t, verbstest.InfiniBand())
				play(t, g, "0", n.Machine(), n.Machine())
			})
		}
	})
}

// play runs the two programs with an entry of the GID table. Both must succeed.
func play(t *testing.T, g games.Game, gid string, serverMachine, clientMachine *verbstest.Machine) {
	t.Helper()
	a := cshim.New(t, serverMachine)
	b := a
	if clientMachine != serverMachine {
		b = cshim.New(t, clientMachine)
	}
	args := append(strings.Fields(g.Args), "-d", serverMachine.Device(), "-p", freePort(t))
	if strings.HasPrefix(g.Program, "ibv_") {
		args = append(args, "-g", gid)
	} else {
		args = append(args, "-F", "-x", gid)
	}
	server, host := start(t, a.Command(g.Program, args...)), "127.0.0.1"
	if strings.Contains(g.Args, "-R") { // rdma_cm instead of TCP
		a.Await(func(s foreign.Stats) bool { return s.Listens > 0 })
		host = serverMachine.Addr().String()
	}
	out := retry(t, server, func() *exec.Cmd { return b.Command(g.Program, append(args, host)...) }, "Couldn't connect")
	for _, text := range []string{out, server.finish(t)} {
		if games.Complaint.MatchString(text) {
			t.Errorf("it complains:\n%s", text)
		}
	}
	if figure := g.Figure(); !strings.Contains(out, figure) {
		t.Errorf("there is no %q in what it prints:\n%s", figure, out)
	}
}
