//go:build vm

package perftest

import (
	"strings"
	"testing"

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
