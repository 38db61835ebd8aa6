package perftest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// Which messages and which time are measured, in which unit. Computed by hand: 1 MiB in
// 4 s is 0.25 MiB/s, or 2.097152 Mb/s.
func TestReport(t *testing.T) {
	const second = int64(1e9)
	for _, c := range []struct {
		line      string
		sent, got int
		want      bwReport
	}{
		{"send_bw -s 1024 -n 1024 -N host", 1024, 0, bwReport{1024, 1024, 0, 0.25, 256e-6}},
		{"send_bw -s 1024 -n 1024 --report_gbits -N host", 1024, 0, bwReport{1024, 1024, 0, 0.002097152, 256e-6}},
		{"send_bw -s 1024 -n 1024", 0, 1024, bwReport{1024, 1024, 0, 0.25, 256e-6}},
		{"send_bw -s 1024 -n 1024 -N -b", 1024, 1000, bwReport{1024, 1024, 0, 0.25, 256e-6}},
		{"write_bw -s 1024 -n 1024 -N --reversed", 1024, 0, bwReport{1024, 1024, 0, 0.25, 256e-6}},
		{"write_bw -s 1024 --run_infinitely host", 1024, 0, bwReport{1024, 1024, 0, 0.25, 256e-6}},
		{"write_bw -s 1024 --run_infinitely -b host", 1024, 0, bwReport{1024, 1024, 0, 0.5, 512e-6}},
	} {
		f := strings.Fields(c.line)
		o := normalized(t, f[0], f[1:]...)
		b := &bandwidthRun{endpoint: &endpoint{o: o, size: o.Size}, completed: c.sent, received: c.got,
			began: 3 * second, ended: 7 * second}
		if d := cmp.Diff(c.want, b.report(), cmp.AllowUnexported(bwReport{}), cmpopts.EquateApprox(1e-9, 0)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.line, d)
		}
	}
	if got, want := (bwReport{2, 10, 1, 2, 4}).plus(bwReport{2, 10, 8, 16, 32}),
		(bwReport{2, 10, 9, 18, 36}); got != want {
		t.Errorf("both directions: %+v, want %+v", got, want)
	}
}

// In a run of a given duration the margins are not measured.
func TestTimed(t *testing.T) {
	v := &watchdog{sampled: 1024}
	v.begin.Store(3e9)
	v.end.Store(7e9)
	e := &endpoint{o: normalized(t, "send_bw", "-D", "6", "-f", "1", "-s", "1024", "host"), watchdog: v, size: 1024}
	b := &bandwidthRun{endpoint: e, completed: 9999, began: 1}
	b.stop()
	if r := b.report(); r.avg != 0.25 || r.iters != 1024 {
		t.Errorf("%+v", r)
	}
	v.sampled = 1000
	for name, ways := range map[string]float64{"send_lat": 2, "read_lat": 1} {
		e.o = normalized(t, name, "-D", "6", "-f", "1", "host")
		l := &latency{endpoint: e, sent: 9999}
		if f := l.result(nil).figures(e.o, 2); f.avg != 4000/ways || f.perSecond != 250 || f.iters != 1000 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// The files are those that perftest writes, apart from the order of tests.
func TestJSONFigures(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	results := func(name string, print func(*Options)) string {
		o, _ := ready(t, name, "--out_json", "--out_json_file="+file)
		print(o)
		text, err := os.ReadFile(file)
		if err = errors.Join(err, o.outputErr); err != nil {
			t.Fatal(err)
		}
		_, found, _ := strings.Cut(string(text), "\"results\": {\n")
		return found
	}
	got := results("send_lat", func(o *Options) {
		o.printLatency(latencyFigures{size: 1, iters: 2, min: 3, max: 4, typical: 5, avg: 6, stdev: 7,
			percentile99: 8, percentile999: 9})
	})
	const latency = `"MsgSize": 1,
"n_iterations": 2,
"t_min": 3.00,
"t_max": 4.00,
"t_typical": 5.00,
"t_avg": 6.00,
"t_stdev": 7.00,
"percentile_99": 8.00,
"percentile_99.9": 9.00
}
}
`
	if d := cmp.Diff(latency, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	got = results("send_bw", func(o *Options) { o.printBandwidth(bwReport{1, 2, 3, 4, 5}) })
	const bandwidth = "\"MsgSize\": 1,\n\"n_iterations\": 2,\n\"BW_peak\": 3.00,\n" +
		"\"BW_average\": 4.00,\n\"MsgRate\": 5.000000\n}\n}\n"
	if d := cmp.Diff(bandwidth, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// Which options the device determines, and which it rejects.
func TestFit(t *testing.T) {
	port := &uverbs.PortAttr{ActiveMTU: uverbs.MTU1024}
	for arg, want := range map[string]string{"256": "", "1024": "", "2048": "has an active MTU of 1024",
		"1000": "is not one of 256, 512"} {
		o := normalized(t, "send_lat", "-m", arg)
		err := o.fitMTU(port)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("-m %s: %v", arg, err)
		}
		if err == nil && strconv.Itoa(o.mtu.Bytes()) != arg {
			t.Errorf("-m %s: %d", arg, o.mtu.Bytes())
		}
	}
	// perftest's values for mlx5.
	for line, want := range map[string]int{"send_lat": 236, "write_lat": 220, "write_lat --write_with_imm": 220,
		"send_lat -c UC": 236, "send_lat -c UD": 188, "send_bw": 0} {
		f := strings.Fields(line)
		o := normalized(t, f[0], f[1:]...)
		if got := o.usualInline("mlx5"); got != want {
			t.Errorf("%s: %d bytes inline, want %d", line, got, want)
		}
		if got := o.usualInline("rxe"); got != 0 {
			t.Errorf("%s: %d bytes inline on rxe", line, got)
		}
	}
}

// The CPUs are busy while two ends poll. As in perftest, the time of processes with a
// positive nice value does not count.
func TestCPUUtil(t *testing.T) {
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 minus the nice value
	if err != nil {
		t.Fatal(err)
	}
	niced := priority < 20
	for _, report := range newPair().play(t, "send_lat -D 1 -f 0 --cpu_util") {
		f := rowOf(report)
		busy, err := strconv.ParseFloat(f[len(f)-1], 64)
		if len(f) != 5 || err != nil || busy < 0 || busy == 0 && !niced || busy > 100 {
			t.Errorf("%q, %v", f, err)
		}
	}
}

// Results of different tests are not added.
func TestReportsMismatch(t *testing.T) {
	for theirs, want := range map[bwReport]string{
		{size: 64, iters: 10}:  "",
		{size: 128, iters: 10}: "-s at the peer: the peer's messages have 128 bytes, and here -s is 64",
		{size: 64, iters: 20}:  "-n at the peer: the peer has done 20 messages, and this end 10",
	} {
		cw, sw := wires(t)
		done := make(chan error, 1)
		go func() {
			_, err := (&control{wire: sw}).reports(limited(t), theirs)
			done <- err
		}()
		var out bytes.Buffer
		o := normalized(t, "write_bw", "-b", "-s", "64", "-n", "10", "host")
		o.out = &out
		_, err := (&endpoint{o: o, ctl: &control{wire: cw, client: true}}).total(limited(t), bwReport{size: 64, iters: 10})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) ||
			(out.Len() > 0) != (want == "") {
			t.Errorf("%+v: %v, %q", theirs, err, &out)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The device's error is wrapped.
func TestFitKeepsCause(t *testing.T) {
	card := newPair().cards[0]
	_, err := openDevice(normalized(t, "send_lat", "-i", "9"), card.open)
	if !errors.Is(err, unix.EINVAL) || !strings.HasPrefix(err.Error(), "-i here: ") {
		t.Error(err)
	}
	card.close(t)
}
