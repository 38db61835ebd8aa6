package perftest

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// TestDC runs the tests over DC between two machines, except those of atomics, which verbstest's
// adapter does not have.
func TestDC(t *testing.T) {
	for command, row := range map[string]string{
		"send_lat -n 20":                                   "2 20",
		"write_lat -n 20 --write_with_imm":                 "2 20",
		"read_lat -n 20":                                   "2 20",
		"send_bw -n 100 -s 5000":                           "5000 100",
		"send_bw -n 100 -s 64 -b -q 2 -Q 5":                "64 200",
		"send_bw -n 20 -s 64 -q 3 -e":                      "64 60",
		"write_bw -n 100 -s 64 -q 2 --mr_per_qp":           "64 200",
		"write_bw -n 100 -s 64 -b -l 10":                   "64 100",
		"write_bw -n 100 -s 64 --reversed":                 "64 100",
		"write_bw -n 100 -s 64 --write_with_imm --no_lock": "64 100",
		"read_bw -n 100 -s 64 -b -q 2":                     "64 200",
	} {
		t.Run(strings.ReplaceAll(command, " ", ""), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			net := verbstest.NewNetwork(t)
			net.Allow(verbstest.ReceiveLate) // all QPs share the SRQ
			server, client := net.Machine(), net.Machine()
			f := append(strings.Fields(command), "-c", "DC", "-p", strconv.Itoa(freePort(t)))
			var outs [2]bytes.Buffer
			options := [2]*Options{normalized(t, f[0], f[1:]...), normalized(t, f[0], append(f[1:], "127.0.0.1")...)}
			ended := make(chan error, 1)
			go server.Run(func() { ended <- Run(ctx, options[0], &outs[0]) })
			client.Run(func() {
				if err := Run(ctx, options[1], &outs[1]); err != nil {
					t.Errorf("the client: %v", err)
					cancel()
				}
			})
			if err := <-ended; err != nil {
				t.Errorf("the server: %v", err)
			}
			if got := rowOf(outs[1].String()); len(got) < 2 || got[0]+" "+got[1] != row {
				t.Errorf("the row is %q, want %s:\n%s", got, row, outs[1].String())
			}
		})
	}
}
