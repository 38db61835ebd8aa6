//go:build vm

package perftest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// testHugePages checks that both programs need huge pages with --use_hugepages, and work with them.
func (h *host) testHugePages(t *testing.T) {
	reserve := func(pages string) { program.Run(t, h.guest, "sysctl", "-w", "vm.nr_hugepages="+pages) }
	reserve("0")
	c := run{"write_bw", "-n 20 -s 1024 -q 2 --mr_per_qp --use_hugepages"}
	p := program.Start(t, h.guest, h.ours, append([]string{c.test, "-d", "rxe0"}, strings.Fields(c.args)...)...)
	const want = "take 2 huge pages of 2048 KiB, and 0 are free: write 2 to /proc/sys/vm/nr_hugepages"
	if err := p.Wait(); err == nil || !strings.Contains(p.Stderr.String(), want) {
		t.Errorf("%v\n%v", err, p)
	}
	reserve("8")
	h.both(t, c)
	reserve("0")
}

// testCounters compares the counters that both programs report. Both ends are on rxe0, which counts packets of both.
func (h *host) testCounters(t *testing.T) {
	counted := regexp.MustCompile(`(?m)^(\t[a-z_/]+=)[1-9][0-9]{2,}(\r?)$`)
	hundreds := func(said string) string { return form(counted.ReplaceAllString(said, "${1}hundreds$2")) }
	for _, c := range []run{
		{"send_bw", "-n 200 -s 64 -W hw_counters/sent_pkts,hw_counters/rcvd_pkts,hw_counters/link_downed"},
		{"write_bw", "-n 200 -s 64 -b --report-both -W hw_counters/sent_pkts"},
		{"write_lat", "-n 200 --report-counters=hw_counters/rcvd_pkts"},
		{"read_lat", "-D 1 -f 0 -W hw_counters/rcvd_pkts"},
	} {
		goServer, cClient := h.play(t, pair{goSide, cSide}, c.test, c.args)
		cServer, goClient := h.play(t, pair{cSide, goSide}, c.test, c.args)
		if d := cmp.Diff(hundreds(cServer), hundreds(goServer)); d != "" {
			t.Errorf("%v, server: (-C +Go)\n%s", c, d)
		}
		if d := cmp.Diff(hundreds(cClient), hundreds(goClient)); d != "" {
			t.Errorf("%v, client: (-C +Go)\n%s", c, d)
		}
		if !strings.Contains(hundreds(goClient), "=hundreds\n") {
			t.Errorf("%v counts nothing:\n%s", c, goClient)
		}
	}
}

// testRateLimit runs tests on a device of InfiniBand that does not limit the rate of queue pairs. Both programs find
// that out, and then limit it themselves, unless the device has to.
func (h *host) testRateLimit(t *testing.T) {
	h.useMLX5(t)
	defer func() { h.device = "rxe0" }()
	h.compare(t, "send_bw", "-n 100 -s 1024 --rate_limit=2.5")
	for _, c := range []struct {
		client side
		says   string
	}{{cSide, "The QP failed to accept HW rate limit"},
		{goSide, "mlx5_0 does not limit queue pairs to this rate: choose SW"}} {
		const args = "-n 100 -s 1024 --rate_limit=10 --rate_limit_type=HW"
		s, cl := h.begin(t, pair{goSide, c.client}, "write_bw", args, args)
		if err := cl.Wait(); err == nil || !strings.Contains(cl.String(), c.says) {
			t.Errorf("no %q: %v\n%v", c.says, err, cl)
		}
		s.Kill()
		<-s.Ended
	}
}
