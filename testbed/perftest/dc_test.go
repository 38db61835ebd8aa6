//go:build vm

package perftest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// differing matches how the program posts requests, and SRQ numbers, which bench/perftest sends
// as 0.
var differing = regexp.MustCompile(`ibv_wr\* API +: (ON|OFF)|SRQn \S+`)

// testDC runs the tests over DC on the software ConnectX with C at either end. Requests of
// several QPs, and both directions, are included.
func (h *host) testDC(t *testing.T) {
	h.useMLX5(t)
	defer func() { h.device = "rxe0" }()
	for _, c := range []struct{ test, args string }{
		{"send_lat", "-n 20"},
		{"write_lat", "-n 20"},
		{"read_lat", "-n 20"},
		{"atomic_lat", "-n 20"},
		{"send_bw", "-n 100 -s 1024"},
		{"send_bw", "-n 100 -s 64 -b -q 2 -Q 5"},
		{"write_bw", "-n 100 -s 1024 -q 2"},
		{"write_bw", "-n 100 -s 64 -b"},
		{"write_bw", "-n 100 -s 1024 -x 0 -z"},
		{"read_bw", "-n 100 -s 1024 -q 2"},
		{"atomic_bw", "-n 50 -A CMP_AND_SWAP"},
	} {
		h.compare(t, c.test, c.args+" -c DC")
	}
}

// TestOutOfOrder runs tests over QPs whose packets may overtake others, which both programs use by default on a kernel
// that has them.
func TestOutOfOrder(t *testing.T) {
	h := newHost(t, "7.2")
	h.useMLX5(t)
	for _, c := range []struct{ test, args, used string }{
		{"send_lat", "-n 20", "ON"},
		{"write_lat", "-n 20", "ON"},
		{"send_bw", "-n 100 -s 8192 -q 2", "ON"},
		{"write_bw", "-n 100 -s 8192 -b", "ON"},
		{"read_bw", "-n 100 -s 1024", "ON"},
		{"send_bw", "-n 100 -s 8192 -c DC", "ON"},
		{"send_bw", "-n 100 -s 8192 --no_ddp", "OFF"},
		{"send_bw", "-n 100 -s 8192 --use_old_post_send", "OFF"},
		{"send_bw", "-n 100 -s 64 -c UC", "OFF"},
	} {
		if out := h.compare(t, c.test, c.args); !strings.Contains(out, "Using DDP      : "+c.used) {
			t.Errorf("%s %s: want DDP %s:\n%s", c.test, c.args, c.used, out)
		}
	}
}

// useMLX5 chooses the software ConnectX for the next runs.
func (h *host) useMLX5(t *testing.T) {
	program.Until(t, h.guest, "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
	h.device = "mlx5_0"
}

// compare runs a test on the software ConnectX with C at either end. It returns what the Go server printed.
func (h *host) compare(t *testing.T, test, args string) (server string) {
	t.Run(test+strings.ReplaceAll(args, " ", ""), func(t *testing.T) {
		goServer, cClient := h.play(t, pair{goSide, cSide}, test, args)
		cServer, goClient := h.play(t, pair{cSide, goSide}, test, args)
		server = goServer
		for _, out := range [][2]string{{cServer, goServer}, {cClient, goClient}} {
			for i := range out {
				out[i] = differing.ReplaceAllString(form(out[i]), "")
			}
			if d := cmp.Diff(out[0], out[1]); d != "" {
				t.Errorf("%s %s: (-C +Go)\n%s", test, args, d)
			}
		}
	})
	return server
}
