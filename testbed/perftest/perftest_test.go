//go:build vm

package perftest

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// address is the address of d0, and so of rxe0.
const address = "10.9.0.1"

// A side is one of the two implementations.
type side string

const (
	goSide side = "go"
	cSide  side = "c"
)

// A pair says which side is the server and which is the client.
type pair struct{ server, client side }

func (p pair) String() string { return fmt.Sprintf("%s-server/%s-client", p.server, p.client) }

// A host is a guest with both programs.
type host struct {
	guest  *vm.Guest
	ours   string // path of our program
	device string // of the runs
	port   int    // each run uses its own port
}

func newHost(t *testing.T, kernel string) *host {
	t.Helper()
	w := world.StartTest(t, world.Config{Devices: 1, LinkLayer: connectx.InfiniBand})
	c := vm.Config{Kernel: kernel, Root: true, RXE: true, VFIOUser: w.Sockets(), Modules: []string{"mlx5_ib"}}
	h := &host{guest: vm.Start(t, c), device: "rxe0", port: 18515}
	t.Cleanup(func() {
		log, err := h.guest.Dmesg(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Error(err)
		}
		if bad := regexp.MustCompile(`(?m)^.*(WARNING:|BUG:|Call Trace).*$`).FindString(log); bad != "" {
			t.Errorf("the kernel complained: %s", bad)
		}
	})
	var err error
	if h.ours, err = h.guest.Install(vm.BuildProgram(t, "github.com/goverbs/goverbs/bench/goverbs-perftest", "",
		"amd64")); err != nil {
		t.Fatal(err)
	}
	program.Run(t, h.guest, "ip", strings.Fields("link set d0 mtu 4200")...)
	return h
}

// start starts one end. The C program's output is line buffered only on a terminal,
// where its lines also end in a carriage return.
func (h *host) start(t *testing.T, s side, test string, args ...string) *program.Process {
	t.Helper()
	if s == goSide {
		return program.Start(t, h.guest, h.ours, append([]string{test}, args...)...)
	}
	return program.StartOn(t, h.guest, &program.Terminal, "ib_"+test, args...)
}

// begin starts a server and its client. Our server listens when it prints that it
// waits, the C server a little later.
func (h *host) begin(t *testing.T, p pair, test, serverArgs, clientArgs string) (s, c *program.Process) {
	t.Helper()
	always := []string{"-F", "-d", h.device, "-p", strconv.Itoa(h.port)}
	h.port++
	s = h.start(t, p.server, test, append(always, strings.Fields(serverArgs)...)...)
	// With --reversed the C program prints it at the wrong end.
	if (p.server == goSide || !strings.Contains(serverArgs, "--reversed")) &&
		!s.Stdout.Await("Waiting for client to connect") {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	if p.server == cSide {
		program.Run(t, h.guest, "timeout", "60", "sh", "-c", fmt.Sprintf(
			"until grep -qi ' 00000000:%04x .* 0A ' /proc/net/tcp ||"+
				" rdma resource show cm_id | grep -q 'LISTEN.* src-addr [^ ]*:%d '; do :; done", h.port-1, h.port-1))
	}
	return s, h.start(t, p.client, test, append(append(always, strings.Fields(clientArgs)...), address)...)
}

// play runs two ends, which must both succeed.
func (h *host) play(t *testing.T, p pair, test, args string) (server, client string) {
	t.Helper()
	s, c := h.begin(t, p, test, args, args)
	if serverErr, clientErr := program.Finish(s, c); serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
	}
	return s.Stdout.String(), c.Stdout.String()
}

// both runs both mixed pairs and compares their output.
func (h *host) both(t *testing.T, c run) {
	goServer, cClient := h.play(t, pair{goSide, cSide}, c.test, c.args)
	cServer, goClient := h.play(t, pair{cSide, goSide}, c.test, c.args)
	if d := cmp.Diff(form(c.comparable(cServer)), form(c.comparable(goServer))); d != "" {
		t.Errorf("%v, server: (-C +Go)\n%s", c, d)
	}
	if d := cmp.Diff(form(c.comparable(cClient)), form(c.comparable(goClient))); d != "" {
		t.Errorf("%v, client: (-C +Go)\n%s", c, d)
	}
}

// A run is a test with its arguments.
type run struct{ test, args string }

func (r run) String() string { return r.test + strings.ReplaceAll(r.args, " ", "") }

// comparable returns an output without a notice that the C program prints at the wrong end.
func (r run) comparable(out string) string {
	if strings.Contains(r.args, "--reversed") {
		return waiting.ReplaceAllString(strings.ReplaceAll(out, "\r\n", "\n"), "")
	}
	return out
}

// common are the tests that perftest's users run: make test has them in a guest, too.
var common = []run{
	{"send_lat", "-n 20"}, {"write_lat", "-n 20"}, {"read_lat", "-n 20"}, {"send_bw", "-n 20 -s 1024"},
	{"write_bw", "-n 20 -s 1024"}, {"read_bw", "-n 20 -s 1024"}, {"send_lat", "-n 20 -R"}, {"send_bw", "-n 20 -R -s 1024"},
	{"send_lat", "-n 20 -c UD"}, {"atomic_lat", "-n 50"},
}

// further are others, which make test has in memory only.
var further = []run{
	{"write_lat", "-n 20 -R"}, {"write_bw", "-n 20 -R -s 1024"}, {"read_lat", "-n 20 -R"}, {"read_bw", "-n 20 -R -s 1024"},
	{"send_lat", "-n 20 -e"},
	{"send_lat", "-n 20 -c UD -R"},
	{"send_lat", "-n 20 -H -s 512"},
	{"send_lat", "-n 20 -z -m 1024"},
	{"send_lat", "-D 1 -f 0 --cpu_util"},
	{"send_bw", "-n 100 -s 64 -q 3 --use-srq -r 30"},
	{"write_bw", "-n 100 -s 64 -q 2 -Q 1 --mr_per_qp --perform_warm_up"},
	{"read_bw", "-n 100 -s 64 -l 10 --perform_warm_up --flow_label=5,6 --reversed"},
	{"send_bw", "-n 100 -b -s 64 -q 2 -Q 5"},
	{"send_bw", "-n 100 -c UC -s 256 -t 8"},
	// The format differs below 0.1 Gb/s. The result of a receiver of few messages is arbitrary.
	{"write_bw", "-n 20 -s 2 --report_gbits"},
	{"write_bw", "-n 100 -s 65536 --report_gbits"},
	{"atomic_bw", "-n 50 -A CMP_AND_SWAP"},
	{"write_bw", "-n 100 -s 1024 -q 2 -b --rate_limit=20000 --rate_units=p --rate_limit_type=SW --burst_size=10"},
	{"write_bw", "-n 100 -s 1024 --rate_limit=10 --burst_size=20"},
	{"send_bw", "-n 100 -s 1024 --rate_limit=50 --rate_units=M --rate_limit_type=SW --burst_size=10"},
}

// TestPerftest runs the tests on one kernel, because the protocol does not depend on the kernel.
func TestPerftest(t *testing.T) {
	h := newHost(t, "6.12")
	for _, c := range common {
		t.Run(c.String(), func(t *testing.T) { h.both(t, c) })
	}
	for _, c := range further {
		t.Run(c.String(), func(t *testing.T) {
			vm.SkipRepeat(t, "TestInMemory")
			h.both(t, c)
		})
	}
	t.Run("dc", h.testDC)
	t.Run("infinite", h.testInfinite)
	t.Run("rate", h.testRateLimit)
	t.Run("hugepages", h.testHugePages)
	t.Run("allocations", h.testAllocations)
	t.Run("json", h.testJSON)
	t.Run("counters", h.testCounters)
	t.Run("ours", h.testOurs)
	t.Run("mistakes", h.testMistakes)
}

// testInfinite checks that infinite runs print reports until they are interrupted.
func (h *host) testInfinite(t *testing.T) {
	for _, c := range []struct {
		p    pair
		test string
		both bool // the server reports, too
	}{{pair{cSide, goSide}, "send_bw", true}, {pair{goSide, cSide}, "write_bw", false}} {
		const args = "-s 64 --run_infinitely -D 1"
		s, cl := h.begin(t, c.p, c.test, args, args)
		if !cl.Stdout.AwaitTimes("\n 64  ", 2) || c.both && !s.Stdout.AwaitTimes("\n 64  ", 2) {
			t.Fatalf("no two reports:\n%v\n%v", s, cl)
		}
		ours, theirs := cl, s
		if c.p.server == goSide {
			ours, theirs = s, cl
		}
		h.interrupt(t, ours, "interrupted")
		theirs.Kill()
		<-theirs.Ended
	}
}

// testAllocations runs the device tests of the package.
func (h *host) testAllocations(t *testing.T) {
	file, err := h.guest.Install(vm.BuildTest(t, "github.com/goverbs/goverbs/bench/perftest", "device", "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	const long = "^TestDeviceNothingAllocated$/bw" // thousands of messages
	env := []string{"GOVERBS_DEVICE=rxe0", "GOVERBS_ADDRESS=" + address, file}
	program.Run(t, h.guest, "env", append(env, "-test.run=TestDevice", "-test.skip="+long)...)
	t.Run("bandwidth", func(t *testing.T) {
		vm.SkipRepeat(t, "TestNothingAllocated of bench/perftest, in memory")
		program.Run(t, h.guest, "env", append(env, "-test.run="+long)...)
	})
}

// testJSON compares the JSON that both clients write.
func (h *host) testJSON(t *testing.T) {
	for _, test := range []string{"read_lat", "write_bw"} {
		texts := map[side]string{}
		for _, p := range []pair{{goSide, cSide}, {cSide, goSide}} {
			const file = "/tmp/report.json"
			s, c := h.begin(t, p, test, "-n 50 -s 64", "-n 50 -s 64 --out_json --out_json_file="+file)
			if serverErr, clientErr := program.Finish(s, c); serverErr != nil || clientErr != nil {
				t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
			}
			texts[p.client] = figuresGone(program.Run(t, h.guest, "cat", file))
		}
		if d := cmp.Diff(texts[cSide], texts[goSide]); d != "" {
			t.Errorf("%s: (-C +Go)\n%s", test, d)
		}
	}
}

// An own is a run of our program at both ends, with what the client prints.
type own struct {
	run
	wants string
}

// ours do not need the C programs, or are not supported by them. make test has them in memory only, but for the last.
var ours = []own{
	{run{"send_lat", "-n 5 -a"}, "\n 8388608 5 "},
	{run{"write_lat", "-n 20 --write_with_imm"}, "RDMA_Write_imm Latency"},
	{run{"write_bw", "-n 50 --write_with_imm -b -s 64"}, " 64         50 "},
	{run{"write_bw", "-n 50 -s 64 -b --report-both"}, "Remote results"},
	{run{"read_bw", "-n 50 -s 64 -b -e"}, " 64         50 "},
	{run{"send_bw", "-n 50 -s 64 -e -b"}, " 64         50 "},
	{run{"send_bw", "-n 50 -s 64 -l 10 --recv_post_list=5 -q 3"}, " 64         150 "},
	{run{"read_bw", "-n 50 -s 64 -q 2 -R --no_lock"}, " 64         100 "},
	{run{"send_bw", "-n 50 -c UD -b -R"}, " 4096       50 "},
	{run{"send_bw", "-D 1 -f 0 -s 64 --no_lock"}, "\n 64 "},
	{run{"send_lat", "-n 20 -U -z --no_lock"}, "\n19, "},
}

func (c own) check(t *testing.T, server, client string) {
	t.Helper()
	if !strings.Contains(client, c.wants) {
		t.Errorf("%v: no %q:\n%s\n%s", c, c.wants, client, server)
	}
}

func (h *host) testOurs(t *testing.T) {
	for i, c := range ours {
		t.Run(c.String(), func(t *testing.T) {
			if i < len(ours)-1 {
				vm.SkipRepeat(t, "TestInMemory")
			}
			server, client := h.play(t, pair{goSide, goSide}, c.test, c.args)
			c.check(t, server, client)
		})
	}
}
