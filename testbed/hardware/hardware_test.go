package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/hardware/suite"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "no device: use -device"},
		{"-device mlx5_0 more", `unexpected argument "more"`},
		{"-device nope", "RDMA"}, // the library's error, which depends on the machine
	} {
		report := t.TempDir() + "/report"
		args := append([]string{"-report", report}, strings.Fields(c.args)...)
		if err := run(t.Context(), args, t.Output()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
		if _, err := os.Stat(report); err == nil {
			t.Errorf("%q: a report was written", c.args)
		}
	}
}

// Which parts are left out depends on the device and on the options.
func TestParts(t *testing.T) {
	roce := target{link: "Ethernet", driver: "mlx5", rc: true, atomics: true}
	bnxt := target{link: "Ethernet", driver: "bnxt_re", rc: true, atomics: true}
	siw := target{link: "Ethernet", driver: "siw", iwarp: true, rc: true}
	for _, c := range []struct {
		on                  target
		address, want, left string
		perftests           int
	}{
		{roce, "", "mlx5 devx uverbs", "cm", 14},
		{roce, "10.9.0.1", "mlx5 devx uverbs cm examples", "", 14},
		{target{link: "InfiniBand", driver: "mlx5", rc: true, atomics: true}, "", "mlx5 devx uverbs cm", "", 14},
		{bnxt, "10.9.0.1", "bnxt_re uverbs cm examples", "", 14},
		{target{link: "Ethernet", driver: "irdma", rc: true}, "10.9.0.1", "irdma uverbs cm examples", "atomic_lat", 13},
		{target{link: "Unspecified", driver: "efa"}, "10.9.0.1", "uverbs", "efa cm wrcost perftest", 0},
		{siw, "", "uverbs", "siw cm wrcost perftest", 0},
		{siw, "10.9.0.1", "siw uverbs cm examples", "wrcost atomic_lat", 13},
	} {
		var out, report strings.Builder
		b := &bench{options: &options{device: "x", address: c.address}, out: &out, report: &report}
		var names []string
		for _, p := range b.suites(c.on) {
			names = append(names, p.name)
			if suites[p.name+".test"] == "" {
				t.Errorf("%+v: the folder has no %s.test", c.on, p.name)
			}
			skip := p.command[len(p.command)-1]
			if !strings.Contains(skip, suite.Disturbing) {
				t.Errorf("%s includes disturbing tests: %s", p.name, skip)
			}
		}
		if !c.on.rc || c.on.iwarp {
			b.costs(t.Context(), c.on)
		}
		if n := len(b.tests(c.on)); n != c.perftests {
			t.Errorf("%+v: %d tests of perftest", c.on, n)
		}
		var left []string
		for line := range strings.Lines(out.String()) {
			name, why, _ := strings.Cut(line, "left out: ")
			left = append(left, strings.TrimSpace(name))
			if !strings.Contains(report.String(), why) || len(why) < 10 {
				t.Errorf("%+v: the report does not say %q", c.on, line)
			}
		}
		if got := strings.Join(names, " "); got != c.want || strings.Join(left, " ") != c.left {
			t.Errorf("%+v, %q: %s, without %v", c.on, c.address, got, left)
		}
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{counts("--- PASS: TestA (0.1s)\n    --- FAIL: TestB/x (0s)\n--- FAIL: TestB (0s)\n--- SKIP: TestC (0s)\n"),
			"1 pass, 1 skipped, 1 fail TestB"},
		{counts("panic: no"), "0 pass, 0 skipped, 0 fail"},
		{lastFigures(" #bytes #iterations t_min t_max t_typical t_avg t_stdev 99% 99.9%\n" +
			" 2       50          1.1     9.9     3.3     4.4     0.5      7.7     8.8\n"), "typical 3.3 us, 99 % 7.7 us"},
		{lastFigures(" 64      100       0.12     0.02      0.000291\n"), "average 0.02 MiB/s, 0.000291 million messages/s"},
		{lineWith("fw_ver")("hca_id:\tmlx5_0\n\tfw_ver:\t\t16.35.1\n"), "fw_ver: 16.35.1"},
		{inOneLine("write 1.0\npoll1 2.0\n"), "write 1.0, poll1 2.0"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// A part that fails is counted, and the others still run.
func TestRun(t *testing.T) {
	var out strings.Builder
	b := &bench{options: &options{}, out: &out, report: &out}
	b.run(t.Context(), part{name: "bad", command: []string{"/bin/sh", "-c", "echo no; exit 3"}, line: inOneLine})
	b.run(t.Context(), part{name: "good", command: []string{"/bin/echo", "yes"}, line: inOneLine})
	if b.parts != 2 || b.failed != 1 || !strings.Contains(out.String(), "exit status 3") ||
		!strings.Contains(out.String(), "yes") {
		t.Errorf("%d of %d failed:\n%s", b.failed, b.parts, out.String())
	}
	w := &waiter{text: "ready", seen: make(chan struct{})}
	for _, s := range []string{"rea", "dy", "ready"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-w.seen:
	case <-time.After(time.Second):
		t.Error("the waiter did not see the text")
	}
}
