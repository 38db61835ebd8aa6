//go:build vm

package cshim_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/verbstest"
)

// C's perftest, whose programs post with ibv_wr_* on a ConnectX. They print nothing of use but that they end without
// an error.
func TestPerftest(t *testing.T) {
	for _, command := range []string{
		"ib_send_bw -n 20 -s 4096", "ib_send_lat -n 20 -e", "ib_write_bw -n 20 -s 65536 -q 2", "ib_write_lat -n 20",
		"ib_read_bw -n 20 -s 4096", "ib_read_lat -n 20", "ib_atomic_bw -n 20", "ib_atomic_lat -n 20 -A CMP_AND_SWAP",
		"ib_send_bw -n 20 -c UD -s 1024", "ib_write_bw -n 20 -c UC", "ib_send_lat -n 20 -R",
	} {
		t.Run(command, func(t *testing.T) {
			n := verbstest.NewNetwork(t)
			ma := n.Machine()
			a, b := cshim.New(t, ma), cshim.New(t, n.Machine())
			args := append(strings.Fields(command), "-p", freePort(t), "-x", "3", "-F")
			server, addr := start(t, a.Command(args[0], args[1:]...)), "127.0.0.1"
			if strings.Contains(command, " -R") { // rdma_cm instead of TCP
				a.Await(func(s foreign.Stats) bool { return s.Listens > 0 })
				addr = ma.Addr().String()
			}
			client := func() *exec.Cmd { return b.Command(args[0], append(args[1:], addr)...) }
			out := retry(t, server, client, "Couldn't connect")
			if !strings.Contains(out, "#bytes") {
				t.Errorf("%s prints:\n%s", command, out)
			}
			server.finish(t)
		})
	}
}
