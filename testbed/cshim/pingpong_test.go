//go:build vm

package cshim_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/verbstest"
)

// C's ping-pongs, which differ in the types of their queues.
var pingpongs = []struct{ name, args string }{
	{"ibv_rc_pingpong", "-c -s 65536 -m 4096"},
	{"ibv_uc_pingpong", "-c"},
	{"ibv_ud_pingpong", "-c"},
	{"ibv_srq_pingpong", "-c"},
	{"ibv_xsrq_pingpong", ""},
}

// C's ping-pongs play with each other, on two machines, with events and without, and on one machine.
func TestPingpongs(t *testing.T) {
	for _, p := range pingpongs {
		for _, args := range []string{"", " -e"} {
			t.Run(p.name+args, func(t *testing.T) {
				n := verbstest.NewNetwork(t)
				a, b := cshim.New(t, n.Machine()), cshim.New(t, n.Machine())
				playPingpong(t, a, b, p.name, p.args+args)
			})
		}
	}
	t.Run("one machine", func(t *testing.T) {
		n := verbstest.NewNetwork(t)
		h := cshim.New(t, n.Machine())
		playPingpong(t, h, h, "ibv_rc_pingpong", "-c -e")
	})
	t.Run("InfiniBand", func(t *testing.T) {
		n := verbstest.NewNetwork(t, verbstest.InfiniBand())
		playPingpong(t, cshim.New(t, n.Machine()), cshim.New(t, n.Machine()), "ibv_rc_pingpong", "-c -e -g 0")
	})
}

func playPingpong(t *testing.T, a, b *cshim.Host, name, args string) {
	t.Helper()
	all := append([]string{"-g", "3", "-n", "200", "-p", freePort(t)}, strings.Fields(args)...)
	if name == "ibv_xsrq_pingpong" {
		all = append(all, "-n", "5")
	}
	server := start(t, a.Command(name, all...))
	out := retry(t, server, func() *exec.Cmd { return b.Command(name, append(all, "127.0.0.1")...) }, "Couldn't connect")
	for _, out := range []string{out, server.finish(t)} {
		if !strings.Contains(out, " iters in ") && !strings.Contains(out, "success") || strings.Contains(out, "invalid") {
			t.Errorf("%s prints:\n%s", name, out)
		}
	}
}
