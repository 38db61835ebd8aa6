//go:build vm

package cshim_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/verbstest"
)

// C's programs on librdmacm, with the arguments of both ends and those of each. %s is the server's address.
var cmPrograms = []struct{ program, both, server, client string }{
	{"rping", "-C 20 -v", "-s -a %s", "-c -a %s"},
	{"rping", "-C 20 -V -S 60000 -p 7500", "-s -a %s", "-c -a %s"},
	{"ucmatose", "-C 20 -c 4", "-b %s", "-s %s"},
	{"udaddy", "-C 20", "-b %s", "-s %s"},
	{"rdma_client", "", "", "-s %s"},
	{"rdma_xclient", "", "", "-s %s"},
	{"rstream", "-S 1000 -I 10 -C 10", "-b %s", "-s %s"},
	{"riostream", "-S 1000 -I 10 -C 10", "-b %s", "-s %s"},
}

func TestCMPrograms(t *testing.T) {
	for _, p := range cmPrograms {
		t.Run(p.program, func(t *testing.T) {
			n := verbstest.NewNetwork(t)
			ma, mb := n.Machine(), n.Machine()
			a, b := cshim.New(t, ma), cshim.New(t, mb)
			args := func(own string) []string {
				return strings.Fields(p.both + " " + strings.ReplaceAll(own, "%s", ma.Addr().String()))
			}
			server := start(t, a.Command(strings.Replace(p.program, "client", "server", 1), args(p.server)...))
			a.Await(func(s foreign.Stats) bool { return s.Listens > 0 })
			t.Logf("%s", output(t, b.Command(p.program, args(p.client)...)))
			t.Logf("%s", server.finish(t))
		})
	}
}
