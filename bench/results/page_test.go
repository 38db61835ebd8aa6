package results

import (
	"fmt"
	"os"
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
	for _, idle := range []int{1, 10000} {
		add(Series{Place: "rxe", Test: IdleQueues, Figure: "wait", At: idle, Unit: "us"}, []float64{39}, []float64{36})
	}
	for _, qps := range []int{1, 256} {
		add(Series{Place: "rxe", Test: ParallelPosts, Figure: "post", At: qps, Unit: "ns"}, []float64{270}, []float64{300})
	}
	add(Series{Place: "rxe", Test: "send_lat -e", Figure: "typical", At: 64, Unit: "us"}, []float64{20}, []float64{40})
	add(Series{Place: "rxe", Test: "objects", Figure: "MR.create", At: 100, Unit: "us"}, []float64{3}, []float64{6})
	write := Series{Place: "instructions", Test: "requests", Figure: "write", At: 1}
	add(write, []float64{200}, []float64{400})
	r.Add(write, Cgo, 800)
	r.Add(Series{Place: "instructions", Test: "requests", Figure: "builder32", At: 1}, Go, 100)
	add(Series{Place: "instructions", Test: Memory, Figure: "QP.rss", At: 10000, Unit: "bytes"},
		[]float64{10500}, []float64{10000})
	add(Series{Place: "rxe", Test: "send_lat -e", Figure: "99 %", At: 64, Unit: "us"}, []float64{90}, []float64{30})
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

// both returns the page and its appendix.
func both(r *Run) string { return r.Page("evidence/page.md") + r.Appendix("../page.md") }

func TestPage(t *testing.T) {
	page := both(sample())
	for _, want := range []string{
		"- Requests on a software ConnectX, instructions, 100 queue pairs: exit status 1\n",
		"| latency, p50 | time on soft-RoCE | 1.00 | 2 of 2 |  |\n",
		"| message rate | messages per second on soft-RoCE | 2.00 | 0 of 2 | 2.00: SEND of 2 bytes, rate |\n",
		"| message rate, many queue pairs | messages per second on soft-RoCE | 0.50 | 2 of 2 |  |\n",
		"| memory of objects | bytes on a software ConnectX | 1.05 | 0 of 1 | 1.05: queue pair, resident |\n",
		"| waits for events | time on soft-RoCE | 1.75 | 1 of 2 | 3.00: SEND of 64 bytes, p99, option -e |\n",
		"| waits, many idle queues | time on soft-RoCE | 1.08 | 0 of 2 | " +
			"1.08: WRITE of 32 bytes and its wait, idle queues: 1 |\n",
		"| post, many goroutines | time on soft-RoCE | 0.90 | 2 of 2 |  |\n",
		"![Time per post, by goroutines: lower is better](../charts/post-rxe-posts-by-queue-pairs.svg)",
		"| idle queues | Go | C | ratio |\n|---|---|---|---|\n| 1 | 39.0 | 36.0 | **1.08** |\n",
		"![Time per wait, by idle queues: lower is better](../charts/wait-rxe-waits-by-idle-queues.svg)",
		"| **all** |  | 0.90 | 11 of 17 |  |\n",
		"![What Go costs, divided by what C costs: lower is better](charts/costs.svg)\n",
		"| perftest, objects and connections on soft-RoCE, time | soft-RoCE | 1–3 | some CPU, 2 CPUs | " +
			"go1.26, rdma-core 56.1, gcc -O2 | 2026-01-02, abc |\n",
		"| Requests on a software ConnectX, instructions | a counting guest | 1 | another CPU, 4 CPUs | " +
			"go1.27, rdma-core 56.1, gcc -O2 | 2026-01-03, def |\n",
		"| Without a device | queues in memory |  | some CPU, 2 CPUs | go1.26 | 2026-01-04, ghi |\n",
		"| queue pair, resident | 10000 | 10500 | 10000 | **1.05** |",
		"#### Latency, ratios of p50\n\n| bytes | 2 | 64 |\n|---|---|---|\n" +
			"| SEND (`send_lat`) | 1.00 (0.95–1.05) | 1.00 (0.95–1.05) |",
		"| SEND (`send_bw`) | **0.50 (0.50–0.50)** | **0.50 (0.50–0.50)** |",
		"| SEND, waits for events (`send_lat -e`), p50 | 20.0 (2.00) | 40.0 (4.00) | µs | 0.50 |",
		"| SEND, waits for events (`send_lat -e`), p99 | 90.0 | 30.0 | µs | **3.00** |",
		"| SEND, waits for events (`send_lat -e`), p50 | 50.0 | 100.0 | thousands of instructions | 0.50 |",
		"| SEND, waits for events (`send_bw -e`) | 0.5000 | 0.2500 | messages in a thousand instructions | 2.00 |",
		"| 64 | 0.5000 | 0.2500 | 2.00 |",
		"| create a memory region | 100 | 3.0 | 6.0 | 0.50 |",
		"| post one request | 200.0 | 400.0 | 0.50 | 800.0 | 0.25 |",
		"![Latency of a SEND of 64 bytes: lower is better](charts/distribution-rxe-send_lat.svg)",
		"![Instructions per request: lower is better](charts/requests-instructions.svg)",
		"| Step/32 | 8.2 ns/WR, 0 allocs/op |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	order := []string{"# Go compared with C", "Some measurements failed", "## Summary", "## Charts", "## All figures",
		"## How to repeat it", "# Go compared with C: all figures", "## Where it was measured", "## Costs",
		"## Other charts", "## All figures", "### Requests on", "### perftest", "### Without a device"}
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
		if !c.Costs && !strings.HasSuffix(c.Title, lowerIsBetter) && !strings.HasSuffix(c.Title, higherIsBetter) {
			t.Errorf("%q does not say which way is better", c.Title)
		}
	}
	for file, want := range map[string]int{"distribution-rxe-send_lat.svg": 2, "typical-rxe-send_lat.svg": 2,
		"rate-rxe-send_bw.svg": 2, "rate-rxe-write_bw-by-queue-pairs.svg": 2, "requests-instructions.svg": 0,
		"wait-rxe-waits-by-idle-queues.svg": 2, "post-rxe-posts-by-queue-pairs.svg": 2,
		"objects-rxe.svg": 0, "costs.svg": 0} {
		c, ok := all[file]
		if !ok || len(c.Lines) != want {
			t.Errorf("%s: %v, %v", file, ok, c)
		}
	}
	if len(all) != 9 {
		t.Errorf("%d charts", len(all))
	}
	d := all["distribution-rxe-send_lat.svg"]
	if want := []string{"p50", "p90", "p99", "p99.9"}; len(d.Ticks) != 4 || d.Ticks[3].Label != want[3] {
		t.Errorf("ticks %v, want %v", d.Ticks, want)
	}
	if l := d.Lines[0]; l.Name != Go || len(l.X) != 1 || l.X[0] != 2 || l.Y[0] != 2 { // the median
		t.Errorf("%v", l)
	}
	rates := all["rate-rxe-send_bw.svg"]
	if rates.Y != "messages per second" || rates.Lines[0].Y[0] != 1e6 || rates.Ticks[1].Label != "64" {
		t.Errorf("%v", rates)
	}
	cost := all["requests-instructions.svg"]
	if len(cost.Rows) != 1 || cost.Rows[0] != "post one request" || len(cost.Bars) != 3 || cost.Bars[2].Values[0] != 800 {
		t.Errorf("%v", cost)
	}
	if c := (&Run{Places: []Place{{Name: "rxe"}}}).Charts(); len(c) != 0 {
		t.Errorf("charts of nothing: %v", c)
	}
}

// The main page has the charts that first names, in its order, and others in the place of those that the run does not
// have. Every other chart is in the appendix.
func TestChosen(t *testing.T) {
	r := sample()
	shown, others := r.chosen()
	if len(shown) != len(first) || shown[0].File != "requests-instructions.svg" || len(shown)+len(others) != 8 {
		t.Fatalf("%d charts and %d others", len(shown), len(others))
	}
	main, appendix := r.Page("evidence/page.md"), r.Appendix("../page.md")
	for i, c := range append(shown, others...) {
		if strings.Contains(main, "(charts/"+c.File+")") != (i < len(shown)) ||
			strings.Contains(appendix, "(../charts/"+c.File+")") != (i >= len(shown)) {
			t.Errorf("%s is not on one of the pages", c.File)
		}
	}
	if !strings.Contains(main, "](evidence/page.md)") || !strings.Contains(main, "](evidence/page.md#where-it-was") ||
		!strings.Contains(appendix, "](../page.md)") {
		t.Error("the pages have no links to each other")
	}
	r, err := Read("../figures/go-and-c.json")
	if err != nil {
		t.Fatal(err)
	}
	shown, _ = r.chosen()
	for i, c := range shown {
		if c.File != first[i] {
			t.Errorf("the figures have no chart %s", first[i])
		}
	}
}

// The README has the table of the page, and a run that lacks one of its figures has no table.
func TestOverview(t *testing.T) {
	r, err := Read("../figures/go-and-c.json")
	if err != nil {
		t.Fatal(err)
	}
	const head = "|  | cgo bindings | goverbs | TCP |\n"
	_, rest, found := strings.Cut(r.Page("x"), head)
	table, _, _ := strings.Cut(rest, "\n\n")
	readme, err := os.ReadFile("../../README.md")
	if !found || err != nil || !strings.Contains(string(readme), "\n"+head+table+"\n") {
		t.Errorf("the table of docs/go-and-c.md is not in README.md (%v): copy it\n%s", err, head+table)
	}
	if strings.Contains(sample().Page("x"), head) {
		t.Error("a table without figures of messages")
	}
}

// What docs/should-i-use-it.md and the README say of goverbs, divided by others, is what was measured.
func TestDecision(t *testing.T) {
	r, err := Read("../figures/go-and-c.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/should-i-use-it.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		what, format string
		figures      []string
	}{{"a message of 64 bytes and its echo", "%.1f", []string{"small"}},
		{"a message of 1 MiB", "%.1f", []string{"large", "offered"}},
		{"echoes on 100 connections at once", "%.1f", []string{"many"}}, {"connect and close", "%.2g", []string{connect}},
	} {
		want := "| " + row.what
		for _, who := range []string{Cgo, C, TCP} {
			want += " | " + fmt.Sprintf(row.format, medianRatio(t, r, who, row.figures))
		}
		if want = strings.ReplaceAll(want, "| 2 ", "| 2.0 ") + " |\n"; !strings.Contains(string(text), want) {
			t.Errorf("docs/should-i-use-it.md: write %s", want)
		}
	}
	cost := fmt.Sprintf("%.2g times cgo's instructions and %.2g times TCP's", medianRatio(t, r, Cgo, []string{connect}),
		medianRatio(t, r, TCP, []string{connect}))
	if !strings.Contains(string(readme), cost) {
		t.Errorf("README.md: write %s", cost)
	}
}

// medianRatio returns the median ratio of Go's instructions to others' of some operations.
func medianRatio(t *testing.T, r *Run, who string, figures []string) float64 {
	t.Helper()
	var ratios []float64
	for _, figure := range figures {
		for _, s := range r.Of(MessageInstructions, MessagesTest, figure) {
			ratio, err := s.Ratio(Go, who)
			if err != nil {
				t.Fatal(err)
			}
			ratios = append(ratios, ratio.Median)
		}
	}
	return Quantile(ratios, 0.5)
}

// A second use of the package's bars does not have the values of the first.
func TestChartsTwice(t *testing.T) {
	r := sample()
	r.Charts()
	for _, c := range r.Charts() {
		for _, b := range c.Bars {
			if len(b.Values) != len(c.Rows) {
				t.Errorf("%s: %d bars of %s in %d rows", c.File, len(b.Values), b.Name, len(c.Rows))
			}
		}
	}
}

// Every figure that the benchmarks measure has a name in words.
func TestWords(t *testing.T) {
	r, err := Read("../figures/go-and-c.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Series {
		name := s.words()
		if s.Test != RsocketTest && (strings.Contains(name, s.Figure) && strings.ContainsAny(s.Figure, "._") ||
			strings.Contains(name, "_") || name == s.Figure) && s.Test != "cmtime" {
			t.Errorf("%s, %s: %q", s.Test, s.Figure, name)
		}
	}
	for _, p := range r.Places {
		if nameOf(p.Name).title == p.Name {
			t.Errorf("place %s has no name", p.Name)
		}
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
		"| WRITE (`write_lat`) |  | 1.00 | 1.00 |\n| SEND (`send_lat`) | 1.00 |  | 1.00 |\n"
	if page := both(r); !strings.Contains(page, want) {
		t.Errorf("no\n%s in\n%s", want, page)
	}
}
