package perftest

import (
	"errors"
	"strings"

	"github.com/goverbs/goverbs/internal/getopt"
)

// refusals are options that perftest has for this test or another, and this
// program has not. taken are those that it has.
func refusals(taken []getopt.Option) (t []getopt.Option) {
	has := map[string]bool{}
	for _, o := range taken {
		has[o.Long] = true
	}
	for _, r := range []struct {
		short     byte
		arg, long string
		why       string
	}{
		{'a', "", "all", "an atomic has 8 bytes"},
		{'s', "size", "size", "an atomic has 8 bytes"},
		{'b', "", "bidirectional", "it is of the bandwidth tests"},
		{'l', "size", "post_list", "it is of the bandwidth tests"},
		{'N', "", "noPeak", "it is of the bandwidth tests"},
		{'q', "num", "qp", "it is of the bandwidth tests: a latency test has one queue pair"},
		{'Q', "num", "cq-mod", "it is of the bandwidth tests"},
		{'t', "dep", "tx-depth", "it is of the bandwidth tests: a latency test has one request under way"},
		{'H', "", "report-histogram", "it is of the latency tests"},
		{'U', "", "report-unsorted", "it is of the latency tests"},
		{'e', "", "events", "a WRITE makes no completion where it arrives: try --write_with_imm without -e, or send_lat -e"},
		{'X', "vector", "vector", "there are no events in WRITE tests"},
		{'I', "size", "inline_size", "what a READ or an atomic fetches cannot be inline"},
		{'o', "num", "outs", "it is of the READ and atomic tests"},
		{'r', "dep", "rx-depth", "READs and atomics take no receives"},
		{'A', "type", "atomic_type", "it is of the atomic tests"},
		{'C', "", "report-cycles", "there is no counter of CPU cycles here: times are in microseconds"},
		{'g', "", "mcg", "multicast tests are left out"},
		{'M', "gid", "MGID", "multicast tests are left out"},
		{'O', "", "dualport", "tests of two ports are left out: run two"},
		{'W', "list", "report-counters", "left out: read them under /sys/class/infiniband before and after"},
		{'L', "limit", "hop_limit", "it is of the tests of raw Ethernet, which are left out"},
		{0, "", "dont_xchg_versions", "perftest itself has not talked to such a peer since 6.24"},
		{0, "", "use_hugepages", "memory from 2 MiB on asks for huge pages by itself"},
		{0, "", "latency_gap", "it is of the latency tests"},
		{0, "", "report_gbits", "it is of the bandwidth tests"},
		{0, "", "report-both", "it is of the bandwidth tests"},
		{0, "", "write_with_imm", "it is of the WRITE tests"},
		{0, "size", "recv_post_list", "it is of the bandwidth tests that take receives"},
	} {
		if has[r.long] {
			continue
		}
		t = append(t, getopt.New(r.short, r.long, r.arg, "", func(string) error { return errors.New(r.why) }))
	}
	return append(t, leftOut(has)...)
}

// leftOut are perftest's other options, to be told from misspelt ones.
func leftOut(has map[string]bool) (t []getopt.Option) {
	const without = "use-srq use-null-mr mr_per_qp run_infinitely reversed report-per-port perform_warm_up odp cpu_util use_ooo no_ddp connectionless"
	const with = "wait_destroy rate_limit rate_units rate_limit_type burst_size typical_pkt_size payload_file_path mmap mmap-offset dlid force-link use_cuda use_rocm"
	refuse := func(string) error { return errors.New("perftest has it, and this program does not") }
	for _, list := range []struct{ names, arg string }{{without, ""}, {with, "value"}} {
		for _, name := range strings.Fields(list.names) {
			if !has[name] {
				t = append(t, getopt.New(0, name, list.arg, "", refuse))
			}
		}
	}
	return t
}
