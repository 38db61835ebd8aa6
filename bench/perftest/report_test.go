package perftest

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/uverbs"
)

// ready returns options as they are when the two ends have agreed, and their output.
func ready(t *testing.T, name string, args ...string) (*Options, *bytes.Buffer) {
	t.Helper()
	o := normalized(t, name, args...)
	var out bytes.Buffer
	o.out, o.device, o.mtu, o.link = &out, "rxe0", uverbs.MTU4096, uverbs.LinkEthernet
	o.gid, o.withGID = uverbs.GIDEntry{GID: seenKeys.gid, Index: 1}, true
	o.Inline = max(o.Inline, 0)
	if o.fetches() {
		o.Outs = 128
	}
	return o, &out
}

// The texts are the output of perftest 6.24 with the same options.
func TestInfo(t *testing.T) {
	const common = ` Dual-port       : OFF		Device         : rxe0
 Number of qps   : 1		Transport type : IB
 Connection type : RC		Using SRQ      : OFF
 PCIe relax order: ON		Lock-free      : OFF
 ibv_wr* API     : OFF		Using DDP      : OFF
`
	for _, c := range []struct{ test, args, want string }{
		{"send_bw", "-n 10 -b -s 1024 host", separator + "                    Send Bidirectional BW Test\n" + common +
			" TX depth        : 10\n RX depth        : 10\n CQ Moderation   : 10\n Mtu             : 4096[B]\n" +
			" Link type       : Ethernet\n" +
			" GID index       : 1\n Max inline data : 0[B]\n rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n" + separator},
		{"read_lat", "", separator + "                    RDMA_Read Latency Test\n" + common +
			" Mtu             : 4096[B]\n Link type       : Ethernet\n GID index       : 1\n Outstand reads  : 128\n" +
			" rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n" + separator},
		{"send_lat", "-R -n 10", separator + "                    Send Latency Test\n" + common +
			" RX depth        : 10\n Mtu             : 4096[B]\n Link type       : Ethernet\n GID index       : 1\n" +
			" Max inline data : 0[B]\n" +
			" rdma_cm QPs\t : ON\n Data ex. method : rdma_cm\n" + separator + " Waiting for client rdma_cm QP to connect\n" +
			" Please run the same command with the IB/RoCE interface IP\n" + separator},
		{"send_lat", "--output=latency", ""},
	} {
		o, out := ready(t, c.test, strings.Fields(c.args)...)
		o.info()
		if d := cmp.Diff(c.want, out.String()); d != "" {
			t.Errorf("%s %s: (-want +got)\n%s", c.test, c.args, d)
		}
	}
}

func TestAddress(t *testing.T) {
	o, out := ready(t, "read_lat")
	o.address("local", keys{outs: 0x80, qpn: 0x1b, psn: 0x6132a9, rkey: 0xb5b, vaddr: 0x564014a75000, gid: seenKeys.gid})
	const want = " local address: LID 0000 QPN 0x001b PSN 0x6132a9 OUT 0x80 RKey 0x000b5b VAddr 0x00564014a75000\n" +
		" GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// postsAt returns the times of posts with these distances.
func postsAt(ns ...int64) (posted []int64) {
	at := int64(1000)
	posted = append(posted, at)
	for _, d := range ns {
		at += d
		posted = append(posted, at)
	}
	return posted
}

func TestLatencyFigures(t *testing.T) {
	o, out := ready(t, "send_lat", "-H", "-U")
	f := latencyResult{posted: postsAt(8000, 2000, 4000, 90000, 6000, 70000), iters: 7}.figures(o, 64)
	// Sorted and halved: 1 2 3 4 35 45, of which 35 and 45 are the tail.
	if f.min != 1 || f.max != 35 || f.typical != 2.5 || f.avg != 2.5 || math.Abs(f.stdev-math.Sqrt(1.25)) > 1e-9 ||
		f.percentile99 != 35 {
		t.Errorf("%+v", f)
	}
	o.printLatency(f)
	want := "#, usec\n1, 4\n2, 1\n3, 2\n4, 45\n5, 3\n6, 35\n#, usec\n1, 1\n2, 2\n3, 3\n4, 4\n" + separator + latHeader +
		" 64      7          1.00           35.00        2.50     \t       2.50        \t1.12   \t\t35.00   \t\t35.00  \n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	read, _ := ready(t, "read_lat")
	if f := (latencyResult{posted: postsAt(2000, 2000, 2000, 2000), iters: 5}).figures(read, 2); f.typical != 2 {
		t.Errorf("a READ goes one way, %+v", f)
	}
	if f := (latencyResult{posted: postsAt(2000), iters: 2}).figures(o, 2); f.iters != 2 || f.avg != 0 {
		t.Errorf("of an early end: %+v", f)
	}
	timed, out := ready(t, "send_lat", "-D", "2")
	timed.printLatency(latencyResult{iters: 14431, elapsed: 2e9}.figures(timed, 2))
	if out.String() != " 2             14431            69.30          7215.50\n" {
		t.Errorf("%q", out)
	}
}

func TestBandwidthFigures(t *testing.T) {
	o, out := ready(t, "send_bw", "-s", "1048576", "-n", "5", "host")
	b := &bandwidthRun{endpoint: &endpoint{o: o, size: o.Size}, total: 5, completed: 5, ended: 20e6,
		posted: []int64{0, 1e6, 2e6, 3e6, 4e6}, done: []int64{2e6, 4e6, 5e6, 8e6, 10e6}}
	r := b.report()
	// The fastest sequence is the second and the third message: 2 in 4 ms.
	if math.Abs(r.avg-500) > 1e-6 || math.Abs(r.rate-0.0005) > 1e-9 || math.Abs(r.peak-1000/fastestByHand(b)) > 1e-6 {
		t.Errorf("%+v", r)
	}
	o.printBandwidth(bwReport{1024, 20, 2.2, 2.2, 0.002251})
	o.Gbits = true
	o.printBandwidth(bwReport{1024, 10, 0.0123456, 0.0111111, 0.5})
	const want = " 1024       20               2.20               2.20   \t\t     0.002251\n" +
		" 1024       10           0.012346            0.011111            0.500000\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if r := (&bandwidthRun{endpoint: b.endpoint}).report(); r.avg != 0 || r.iters != 0 {
		t.Errorf("of nothing: %+v", r)
	}
}

// fastestByHand returns the least of all quotients, in ms.
func fastestByHand(b *bandwidthRun) float64 {
	least := math.Inf(1)
	for i := 0; i < len(b.posted); i += b.o.PostList {
		for j := i; j < len(b.done); j++ {
			if b.done[j] != 0 {
				least = min(least, float64(b.done[j]-b.posted[i])/1e6/float64(j-i+1))
			}
		}
	}
	return least
}

// randomRun returns a run with random times.
func randomRun(messages, list, mod int) *bandwidthRun {
	b := &bandwidthRun{endpoint: &endpoint{o: &Options{PostList: list}}, completed: messages,
		posted: make([]int64, messages), done: make([]int64, messages)}
	r := rand.New(rand.NewPCG(1, uint64(messages)))
	at := int64(1e9)
	for i := range b.posted {
		if at += r.Int64N(300); i%list == 0 {
			b.posted[i] = at
		}
		if (i+1)%mod == 0 {
			b.done[i] = at + 1000 + r.Int64N(9000)
		}
	}
	return b
}

// A test that needs more memory than is available is rejected before the allocation.
func TestMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "meminfo")
	if err := os.WriteFile(file, []byte("MemTotal:        1000000 kB\nMemAvailable:     204800 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"send_lat -n 4294967296": "-n here: the times of 4294967296 messages take 32768 MiB, and 200 " +
			"MiB are free",
		"send_lat -n 26000000":             "",
		"send_lat -n 26214400 -U":          "take 400 MiB",
		"send_lat -D 5 host":               "",
		"read_lat -n 4294967296":           "",
		"read_lat -n 4294967296 host":      "take 32768 MiB",
		"write_bw -q 16384 -n 20000 -s 64": "",
		"write_bw -q 16384 -n 20000 -s 64 host": "-N here: the times of 20000 messages of 16384 queue pairs, which the " +
			"peak needs, take 5000 MiB",
		"write_bw -q 16384 -n 20000 -N -s 64 host": "",
		"send_bw -q 1000 -n 20000 -b -t 100 -s 64": "take 305 MiB",
		"send_bw -q 16384 -n 20000 -t 100 -s 64":   "",
		"send_lat -s 2147483647": "-s here: the buffers take 4096 MiB for 1 queue pairs, and 200 " +
			"MiB are free",
		"write_bw -a -q 64":                 "take 1024 MiB for 64 queue pairs",
		"read_lat -s 64M":                   "",
		"send_bw -c UD -a -q 100 -n 100":    "",
		"send_bw -n 4294967296 -t 100 host": "",
	} {
		name, rest, _ := strings.Cut(args, " ")
		err := normalized(t, name, strings.Fields(rest)...).checkMemory(file)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := meminfo("MemTotal: 1 kB\n", "MemAvailable"); err == nil {
		t.Error("no memory at all, and no error")
	}
}

// The peak is that of all pairs, also of many messages.
func TestFastest(t *testing.T) {
	for _, c := range []struct{ messages, list, mod int }{{1, 1, 1}, {300, 1, 1}, {600, 1, 100},
		{640, 32, 32}, {320, 8, 4}} {
		b := randomRun(c.messages, c.list, c.mod)
		if got, want := b.fastest(), fastestByHand(b)*1e6; math.Abs(got-want) > want*1e-9 {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
	}
	if v := randomRun(4, 1, 8).fastest(); v != 0 {
		t.Errorf("without a completion: %v", v)
	}
	found := make(chan float64)
	go func() { found <- randomRun(maxPeakIters*64, 1, 100).fastest() }()
	select {
	case v := <-found:
		if v < 100 || v > 160 {
			t.Errorf("of many: %v", v)
		}
	case <-time.After(time.Minute):
		t.Fatal("the peak of 64 queue pairs takes for ever")
	}
}

func TestLimits(t *testing.T) {
	o, _ := ready(t, "send_bw", "-w", "10", "-y", "2", "host")
	for _, c := range []struct {
		avg, rate float64
		want      string
	}{{10, 2, ""}, {9, 2, "below the limit of 10.00 (-w)"}, {11, 1, "below the limit of 2.000000 (-y)"},
		{math.NaN(), 2, "(-w)"}} {
		err := o.checkLimits(bwReport{avg: c.avg, rate: c.rate})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The file has perftest's keys and is JSON, also with one figure only.
func TestJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	for _, c := range []struct{ test, args, want string }{
		{"send_lat", "", `"percentile_99.9": 0.00`}, {"send_lat", "-D 4", `"tps_average": 0.00`},
		{"send_lat", "--output=latency -T 3 -R", `"avg_lat": 0.0`},
		{"send_lat", "--output=latency -D 4", `"t_avg": 0.0`},
		{"atomic_bw", "-b -l 2 -t 4", `"test": "Atomic_FETCH_AND_ADD_Bidirectional_Post_List_BW_Test"`},
		{"send_bw", "--output=bandwidth -e --recv_post_list=2", `"Test with events": "Using_rxe0_comp0"`},
		{"send_bw", "--output=message_rate", `"msgRate_avg": 0.0`},
	} {
		o, _ := ready(t, c.test, append(strings.Fields(c.args), "--out_json", "--out_json_file="+file)...)
		if o.Bandwidth {
			o.printBandwidth(bwReport{})
		} else {
			o.printLatency(latencyFigures{})
		}
		text, err := os.ReadFile(file)
		if err != nil || o.outputErr != nil || !json.Valid(text) || !strings.Contains(string(text), c.want) {
			t.Errorf("%s %s: %v, no %s:\n%s", c.test, c.args, err, c.want, text)
		}
	}
	for _, bad := range []string{file + "/none", t.TempDir() + "/none/file", t.TempDir()} {
		o, err := Parse(Test{Send, true}, []string{"--out_json", "--out_json_file=" + bad})
		if err == nil {
			err = o.normalize()
		}
		if err == nil || !strings.Contains(err.Error(), "--out_json_file here") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A report that cannot be written or printed is an error at the end, and does not end
// the run.
func TestOutputErrors(t *testing.T) {
	for _, name := range []string{"send_lat", "send_bw"} {
		o, out := ready(t, name, "--out_json", "--out_json_file=/dev/full")
		o.printLatency(latencyFigures{iters: 1234})
		o.printBandwidth(bwReport{iters: 1234})
		if strings.Count(out.String(), "1234") != 2 || !errors.Is(o.outputErr, syscall.ENOSPC) {
			t.Errorf("%s: %q, %v", name, out, o.outputErr)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	o := Defaults(Test{Send, true})
	o.Device, o.Iters = "none", maxPeakIters+1
	if err := Run(t.Context(), o, full); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}
