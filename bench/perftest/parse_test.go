package perftest

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goverbs/goverbs/uverbs"
)

// The values that perftest prints for these options, or has in its source.
func TestNormalize(t *testing.T) {
	type figures struct {
		size, iters, tx, rx, mod int
		noPeak                   bool
	}
	for _, c := range []struct {
		line string
		want figures
	}{
		{"send_lat", figures{2, 1000, 1, 512, 1, true}},
		{"ib_send_lat -n 10", figures{2, 10, 1, 10, 1, true}},
		{"send_lat -n 11", figures{2, 11, 1, 12, 1, true}},
		{"send_lat -c UD", figures{2, 1000, 1, 1000, 1, true}},
		{"write_lat", figures{2, 1000, 1, 1, 1, true}},
		{"read_lat -s 0x10", figures{16, 1000, 1, 1, 1, true}},
		{"atomic_lat", figures{8, 1000, 1, 1, 1, true}},
		{"send_bw host", figures{65536, 1000, 128, 512, 1, false}},
		{"send_bw", figures{65536, 1000, 128, 512, 1, true}},
		{"send_bw -b", figures{65536, 1000, 128, 512, 1, false}},
		{"send_bw -s 4K host", figures{4096, 1000, 128, 512, 100, false}},
		{"send_bw -s 2M -Q 7 host", figures{2 << 20, 1000, 128, 512, 7, false}},
		{"send_bw -c UC -n 20000 -s 64 host", figures{64, 20000, 128, 16000, 100, false}},
		{"write_bw host", figures{65536, 5000, 128, 1, 1, false}},
		{"write_bw -r 64 -n 30000 host", figures{65536, 30000, 128, 1, 1, true}},
		{"write_bw --write_with_imm -n 10 host", figures{65536, 10, 10, 10, 1, false}},
		{"write_bw -a -q 3 host", figures{maxSize, 5000, 128, 1, 100, false}},
		{"write_bw -l 10 -s 8 host", figures{8, 5000, 128, 1, 10, false}},
		{"read_bw -n 10 -s 1024 -D 5 host", figures{1024, 10, 128, 1, 100, true}},
		{"atomic_bw -n 10 host", figures{8, 10, 10, 1, 10, false}},
	} {
		f := strings.Fields(c.line)
		o := normalized(t, f[0], f[1:]...)
		got := figures{o.Size, o.Iters, o.TxDepth, o.RxDepth, o.CQMod, o.NoPeak}
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(figures{})); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.line, d)
		}
	}
}

func TestParse(t *testing.T) {
	o := normalized(t, "send_bw", strings.Fields("-d rxe0 -i 2 -x 3 -p 1234 -F -t 64 -q 4 -c UC -m 1024 -I 64 -e -X 1 "+
		"-b -l 8 -Q 4 --report_gbits --out_json --out_json_file=f host")...)
	want := Defaults(Test{Send, true})
	want.Device, want.IBPort, want.GIDIndex, want.Port, want.TxDepth, want.QPs, want.Type =
		"rxe0", 2, 3, 1234, 64, 4, uverbs.UC
	want.MTU, want.Inline, want.Events, want.Vector, want.Bidirectional, want.PostList, want.CQMod =
		1024, 64, true, 1, true, 8, 4
	want.Gbits, want.JSON, want.JSONFile, want.Server, want.RxDepth = true, true, "f", "host", 1000
	if d := cmp.Diff(want, o, cmpopts.IgnoreUnexported(Options{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestParseMistakes(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"send_lat -n 4", "option -n, --iters: \"4\" is not a number from 5 to"},
		{"send_lat -n 10 -n 10", "it is given twice"},
		{"send_lat a b", "there are 2: a b"},
		{"send_lat -q 2", "option -q, --qp: only bandwidth tests have it"},
		{"send_lat -C", "option -C, --report-cycles: CPU cycles are not counted"},
		{"send_lat -W a,../../x", `option -W, --report-counters: "../../x" is not a file of the port`},
		{"send_lat -W a,", `"" is not a file of the port`},
		{"write_lat -e", "a WRITE causes no completion at the peer"},
		{"read_bw -c UC", "-c here: READs and atomics need RC or DC"},
		{"write_bw -c UD", "-c here: UD supports only SEND"},
		{"send_bw -c XRC", "XRC is not supported"},
		{"send_bw -c rc", `"rc" is not one of RC, UC, UD and DC`},
		{"send_bw -c UC -R", "rdma_cm does not connect UC"},
		{"send_bw -c DC -R", "rdma_cm does not connect DC"},
		{"send_bw -T 3", "-T here: it applies to rdma_cm's queue pairs"},
		{"send_bw -X 1", "-X here: a completion vector needs events"},
		{"send_bw -D 4 -f 2", "-f here: a margin of 2 s at both ends leaves nothing of 4 s"},
		{"send_bw -f 2", "-f here: a margin needs a duration"},
		{"send_bw -D 4 -a", "-D here: a run of a given duration has one size"},
		{"send_bw -D 4 -e", "-D here: a run of a given duration polls"},
		{"send_bw -l 3", "-l here: lists of 3 do not divide 1000 messages"},
		{"send_bw -l 200", "-l here: a list of 200 does not fit into a queue of 128"},
		{"send_bw -l 10 -Q 4", "-Q here: the last request of each list of 10 must be signaled"},
		{"send_bw --recv_post_list 3", "--recv_post_list here: lists of 3"},
		{"send_bw --report-both", "add -b"},
		{"send_bw -s 3G", `"3G" is not a number of bytes`},
		{"send_bw -s 2048M", "is not a number of bytes"},
		{"send_bw --output=latency", "bandwidth, message_rate"},
		{"atomic_bw -s 16", "option -s, --size: an atomic has 8 bytes"},
		{"atomic_bw -A x", `"x" is not one of CMP_AND_SWAP and FETCH_AND_ADD`},
		{"read_lat -I 8", "cannot be inline"},
		{"send_bw --bind_source_ip ::1", "give an IPv6 address with --ipv6-addr"},
		{"send_bw --ipv6-addr --bind_source_ip 127.0.0.1", "give an IPv6 address with"},
		{"send_bw -w nan", "is not a number of at least 0"}, {"send_bw -y Inf", "is not a number of at least 0"},
		{"send_lat -w 1", "option -w, --limit_bw: only bandwidth tests have it"},
		{"write_bw --use-srq", "option --use-srq: only SEND tests have it"},
		{"send_bw --use-srq -c UC", "UC has no shared receive queues"},
		{"send_bw --use-srq -r 4 -q 8", "receives are not enough for 8 queue pairs: raise -r and -n"},
		{"send_bw --use-srq -q 100 -n 50", "50 receives are not enough for 100 queue pairs: raise -r and -n"},
		{"send_bw --perform_warm_up", "--perform_warm_up here: only the bandwidth tests of WRITE, READ and atomics have it"},
		{"read_bw --run_infinitely -e", "polls: leave out -e"},
		{"read_bw --run_infinitely -a", "one size: leave out -a"},
		{"send_bw --run_infinitely -b", "in one direction only: leave out -b"},
		{"send_lat --run_infinitely", "use -D in a latency test"},
		{"write_bw --cpu_util", "add -D"},
		{"write_bw --reversed -R", "leave out -R and -z"},
		{"write_bw --flow_label=1,x", `"x" is not a flow label`},
		{"write_bw --flow_label=0x100000", "at most 20 bits"},
		{"write_bw --payload_file_path=/dev/null", "contains no words"},
		{"write_lat --payload_file_path=/dev/null", "counts its messages in the payload"},
		{"write_bw --dlid=0", "is not a number from 1 to 65535"},
		{"write_bw --itrs=7", "unknown option --itrs: did you mean --iters?"},
		{"write_bw --tx_depth=7", "unknown option --tx_depth: did you mean --tx-depth?"},
		{"send_lat --report_gbits", "option --report_gbits: only bandwidth tests have it"},
		{"send_lat --rate_limit=3", "option --rate_limit: only bandwidth tests have it"},
		{"send_bw --rate_limit=0", `"0" is not a number above 0`}, {"send_bw --rate_limit=x", `"x" is not a number above 0`},
		{"send_bw --rate_units=k", `"k" is not one of M, g and p`},
		{"send_bw --rate_limit_type=PP", "packet pacing (PP) is for raw Ethernet tests, which are not supported: choose SW"},
		{"send_bw --rate_limit_type=sw", `"sw" is not one of HW and SW`},
		{"send_bw --rate_limit_type=SW", "--rate_limit_type here: there is no rate"},
		{"send_bw --burst_size=5", "--burst_size here: there is no rate"},
		{"send_bw -g -b", "-g here: the client sends to a group of the server"},
		{"send_bw -g -q 2", "-g here: a group has one queue pair"},
		{"send_lat -g -R", "-g here: the test attaches its queue pair itself"},
		{"send_lat -M 255:1:0:0:0:2:201:133:0:0:0:0:0:0:0:0", "-M here: there is no group"},
		{"send_lat -M 255:1:0", "has 3 bytes separated by colons, not 16"},
		{"send_lat -M 255:1:0:0:0:2:201:133:0:0:0:0:0:0:0:256", `"256" is not a byte`},
		{"send_lat -M 0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0", "is not a group"},
		{"write_bw -g", "option -g, --mcg: only SEND tests have it"},
		{"send_bw --connectionless", "the two ends always agree on the test"},
		{"send_bw --typical_pkt_size=5", "only packet pacing has it"},
		{"send_bw --rate_limit=5 -e", "a test that limits the rate polls: leave out -e, or add --rate_limit_type=HW"},
		{"send_bw --rate_limit=5 --rate_limit_type=HW -R", "leave out -R, or choose SW"},
		{"send_bw --rate_limit=1e-9", "bursts of 128 messages of 65536 bytes are more than 10m0s apart"},
		{"send_lat --nonsense", "unknown option --nonsense"},
		{"send_lat --bind_source_ip=x", "option --bind_source_ip"},
		{"send_bw -E x", "raw Ethernet"},
	} {
		f := strings.Fields(c.line)
		test, _ := TestNamed(f[0])
		if _, err := Parse(test, f[1:]); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.line, err, c.want)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, test := range Tests {
		if u := Usage(test); !strings.Contains(u, "  -n, --iters=<iters> ") || strings.Contains(u, "\x00") {
			t.Errorf("%v:\n%s", test, u)
		}
	}
}

// The defaults are those in perftest's help.
func TestDefaults(t *testing.T) {
	for _, test := range Tests {
		o := Defaults(test)
		size, depth, iters := 2, 1, 1000
		if test.Bandwidth {
			size, depth = 65536, 128
		}
		if test.Verb == Write && test.Bandwidth {
			iters = 5000
		}
		if test.Verb == Atomic {
			size = 8
		}
		if o.Size != size || o.TxDepth != depth || o.Iters != iters || o.QPTimeout != 14 || o.RetryCount != 7 ||
			o.CQMod != 100 || o.Port != 18515 {
			t.Errorf("%v: %+v", test, o)
		}
	}
	for seconds, margin := range map[string]int{"4": 1, "10": 2, "2": 0} {
		if o := normalized(t, "send_bw", "-D", seconds); o.Margin != margin {
			t.Errorf("-D %s: a margin of %d", seconds, o.Margin)
		}
	}
}

// Options that were not filled in are rejected.
func TestEmptyOptions(t *testing.T) {
	half := Defaults(Test{Send, true})
	half.CQMod = 0
	for _, o := range []*Options{{TOS: -1}, {Test: Test{Verb: 99}, TOS: -1}, half} {
		var e *Error
		if err := Run(t.Context(), o, io.Discard); !errors.As(err, &e) || e.Side != Here {
			t.Errorf("%+v: %v", o.Test.Verb, err)
		}
	}
}
