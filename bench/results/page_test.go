package results

import (
	"strings"
	"testing"
)

func sample() *Run {
	r := &Run{C: "gcc -O2", Places: []Place{
		{"rxe", "soft-RoCE", "2026-01-02", "abc", "some CPU", 2, "go1.26", "rdma-core 56.1"},
		{"instructions", "a counting guest", "2026-01-03", "def", "another CPU", 4, "go1.27", "rdma-core 56.1"},
		{"native", "queues in memory", "2026-01-04", "ghi", "some CPU", 2, "go1.26", ""}}}
	add := func(key Series, goes, c []float64) {
		for i := range goes {
			r.Add(key, Go, goes[i])
			r.Add(key, C, c[i])
		}
	}
	for _, size := range []int{2, 64} {
		add(Series{Place: "rxe", Test: "send_lat", Figure: "typical", At: size, Unit: "us"}, []float64{9, 10, 11},
			[]float64{10, 10, 10})
		add(Series{Place: "rxe", Test: "send_bw", Figure: "rate", At: size, More: true}, []float64{1, 1, 1},
			[]float64{2, 2, 2})
	}
	add(Series{Place: "rxe", Test: ManyQPs, Figure: "rate", At: 1, More: true}, []float64{0.5}, []float64{0.25})
	add(Series{Place: "rxe", Test: ManyQPs, Figure: "rate", At: 64, More: true}, []float64{0.5}, []float64{0.25})
	add(Series{Place: "rxe", Test: "send_lat -e", Figure: "typical", At: 64, Unit: "us"}, []float64{20}, []float64{40})
	add(Series{Place: "rxe", Test: "objects", Figure: "MR.create", At: 100, Unit: "us"}, []float64{3}, []float64{6})
	write := Series{Place: "instructions", Test: "requests", Figure: "write", At: 1}
	add(write, []float64{200}, []float64{400})
	r.Add(write, Cgo, 800)
	r.Add(Series{Place: "instructions", Test: "requests", Figure: "builder32", At: 1}, Go, 100)
	add(Series{Place: "instructions", Test: Memory, Figure: "QP.rss", At: 10000, Unit: "bytes"},
		[]float64{10500}, []float64{10000})
	add(Series{Place: "instructions", Test: "send_lat -e", Figure: "typical", At: 64, Unit: "us"},
		[]float64{50}, []float64{100})
	add(Series{Place: "instructions", Test: "send_bw -e", Figure: "rate", At: 64, Unit: "M messages/s", More: true},
		[]float64{0.5}, []float64{0.25})
	r.Failures = []Failure{{"instructions", "100 queue pairs", "exit status 1\nand its output"}}
	r.Distributions = []Distribution{{"rxe", "send_lat", Go, 64, "us", []float64{1, 2, 9}},
		{"rxe", "send_lat", C, 64, "us", []float64{1, 3, 4}}}
	r.Benchmarks = []Benchmark{{"Step/32", map[string]float64{"ns/op": 270, "ns/WR": 8.2, "allocs/op": 0}}}
	return r
}

func TestPage(t *testing.T) {
	page := sample().Page()
	for _, want := range []string{
		"- instructions, 100 queue pairs: exit status 1\n",
		"| **rxe** | **all** | 6 of 8 | 0.75 | 2.00 (send_bw rate, 2) |\n|  | latency, typical | 2 of 2 | 1.00 |  |\n",
		"|  | rate | 0 of 2 | 2.00 | 2.00 (send_bw rate, 2) |", "|  | as queue pairs grow | 2 of 2 | 0.50 |  |",
		"| **instructions** | **all** | 3 of 4 | 0.50 | 1.05 (memory QP.rss, 10000) |",
		"| rxe | soft-RoCE | 1–3 | some CPU, 2 CPUs | go1.26, rdma-core 56.1, gcc -O2 | 2026-01-02, abc |\n",
		"| instructions | a counting guest | 1 | another CPU, 4 CPUs | go1.27, rdma-core 56.1, gcc -O2 | 2026-01-03, def |\n",
		"| native | queues in memory |  | some CPU, 2 CPUs | go1.26 | 2026-01-04, ghi |\n",
		"| QP.rss | 10000 | 10500.0 | 10000.0 | **1.05** |",
		"#### Latency, ratios of the typical time\n\n| bytes | 2 | 64 |\n|---|---|---|\n" +
			"| send_lat | 1.00 (0.95–1.05) | 1.00 (0.95–1.05) |",
		"| send_bw | **0.50 (0.50–0.50)** | **0.50 (0.50–0.50)** |",
		"| send_lat -e | 20.0 (2.00) | 40.0 (4.00) | us | 0.50 |",
		"| send_lat -e | 50.0 | 100.0 | thousands of instructions | 0.50 |",
		"| send_bw -e | 0.5000 | 0.2500 | messages in a thousand instructions | 2.00 |",
		"| 64 | 0.5000 | 0.2500 | 2.00 |",
		"| MR.create | 100 | 3.0 | 6.0 | 0.50 |",
		"| write | 200.0 | 400.0 | 0.50 | 800.0 | 0.25 |",
		"![send_lat of 64 bytes, rxe](charts/distribution-rxe-send_lat.svg)", "![a request](charts/cost-instructions.svg)",
		"| Step/32 | 8.2 ns/WR, 0 allocs/op |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	order := []string{"# Go compared with C", "Some measurements failed", "## Summary", "## Charts", "## All figures",
		"### rxe", "### instructions", "### Without a device", "## How to repeat it"}
	at := 0
	for _, heading := range order {
		next := strings.Index(page[at:], heading)
		if next < 0 {
			t.Fatalf("no %q after what comes before it, in\n%s", heading, page)
		}
		at += next
	}
	if strings.Contains(page, "and its output") {
		t.Error("a failure has more than its first line")
	}
	if strings.Contains(page, "NaN") {
		t.Errorf("NaN in\n%s", page)
	}
}

func TestCharts(t *testing.T) {
	all := map[string]Chart{}
	for _, c := range sample().Charts() {
		all[c.File] = c
	}
	for file, want := range map[string]int{"distribution-rxe-send_lat.svg": 2, "typical-rxe-send_lat.svg": 2,
		"rate-rxe-send_bw.svg":                 2,
		"rate-rxe-write_bw-by-queue-pairs.svg": 2, "cost-instructions.svg": 0} {
		c, ok := all[file]
		if !ok || len(c.Lines) != want {
			t.Errorf("%s: %v, %v", file, ok, c)
		}
	}
	if len(all) != 5 {
		t.Errorf("%d charts", len(all))
	}
	d := all["distribution-rxe-send_lat.svg"].Lines[0]
	if d.Name != Go || len(d.X) != 2 || d.X[0] != 1 || d.Y[0] != 1 || d.X[1] != 2 || d.Y[1] != 2 {
		t.Errorf("%v", d)
	}
	cost := all["cost-instructions.svg"]
	if len(cost.Groups) != 1 || len(cost.Bars) != 3 || cost.Bars[2].Values[0] != 800 {
		t.Errorf("%v", cost)
	}
	if c := (&Run{Places: []Place{{Name: "rxe"}}}).Charts(); len(c) != 0 {
		t.Errorf("charts of nothing: %v", c)
	}
}

// The cell of a missing figure is empty, not the last cell of the row.
func TestColumns(t *testing.T) {
	r := &Run{Places: []Place{{Name: "rxe"}}}
	for _, s := range []Series{{Test: "write_lat", At: 64}, {Test: "write_lat", At: 4096}, {Test: "send_lat", At: 2},
		{Test: "send_lat", At: 4096}} {
		s.Place, s.Figure = "rxe", "typical"
		r.Add(s, Go, 5)
		r.Add(s, C, 5)
	}
	const want = "| bytes | 2 | 64 | 4096 |\n|---|---|---|---|\n" +
		"| write_lat |  | 1.00 | 1.00 |\n| send_lat | 1.00 |  | 1.00 |\n"
	if page := r.Page(); !strings.Contains(page, want) {
		t.Errorf("no\n%s in\n%s", want, page)
	}
}
