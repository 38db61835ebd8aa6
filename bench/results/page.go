package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// ManyQPs is the test with an increasing number of queue pairs.
const ManyQPs = "write_bw by queue pairs"

// Memory is the test that measures the memory of many objects.
const Memory = "memory"

// Page returns the run as Markdown: a summary, the charts, and all figures. The
// charts are files in the directory charts beside the page.
func (r *Run) Page() string {
	p := &page{run: r}
	p.printf("# Go compared with C\n\n")
	p.printf("`make bench` writes this page. It runs programs in Go and their counterparts in C alternately on the same machine, in\n")
	p.printf("an order that changes from round to round. [performance.md](performance.md) explains the results, and how to make\n")
	p.printf("programs fast.\n\n")
	p.failures()
	p.printf("## Summary\n\n")
	p.printf("A cost is the time, the instructions or the memory that Go needs, divided by what C needs in the same round. For\n")
	p.printf("rates it is C's rate divided by Go's. **Below 1 Go is better.** A figure is as good as C's if its cost is at most\n")
	p.printf("1.00, rounded, within the spread of the rounds. Absolute figures from emulated machines and software devices are\n")
	p.printf("not representative of adapters. Only the comparison is meaningful.\n\n")
	p.rows([]string{"where", "what", "as good as C", "median cost", "highest cost of the others"}, r.summary())
	p.places()
	p.charts()
	p.printf("## All figures\n\n")
	p.printf("A ratio is the median of Go's figure divided by C's, with the quartiles in brackets. Below 1 is better for times, above\n")
	p.printf("1 for rates. Ratios are **bold** where Go is worse by more than the spread. The C programs perftest, cmtime and rstream\n")
	p.printf("are unmodified packages; the others are in testbed/speed/testdata. C's perftest posts with ibv_wr_* if the provider\n")
	p.printf("supports it (mlx5), Go's with PostSend. C's cmtime passes its steps to a thread and waits with sched_yield, Go's\n")
	p.printf("does them itself.\n\n")
	for _, place := range r.Places {
		if place.Name != Native {
			p.place(place)
		}
	}
	p.benchmarks()
	p.repeating()
	return p.b.String()
}

// charts prints the charts, two in a row.
func (p *page) charts() {
	var rows [][]string
	for i, c := range p.run.Charts() {
		if i%2 == 0 {
			rows = append(rows, nil)
		}
		last := &rows[len(rows)-1]
		*last = append(*last, fmt.Sprintf("![%s](charts/%s)", c.Title, c.File))
	}
	if len(rows) > 0 {
		p.printf("## Charts\n\n")
		p.rows([]string{"", ""}, rows)
	}
}

// failures lists the failures.
func (p *page) failures() {
	if len(p.run.Failures) == 0 {
		return
	}
	p.printf("**Some measurements failed.** They have no figures below, or those of an earlier commit, which the table of places\n")
	p.printf("shows:\n\n")
	for _, f := range p.run.Failures {
		first, _, _ := strings.Cut(f.Why, "\n")
		p.printf("- %s: %s\n", join(f.Part, f.What), first)
	}
	p.printf("\n")
}

// places prints where and when the programs ran, and their commits.
func (p *page) places() {
	var rows [][]string
	for _, place := range p.run.Places {
		inC := ""
		if place.Library != "" {
			inC = join(place.Library, p.run.C)
		}
		rounds := ""
		switch least, most := p.run.rounds(place.Name); {
		case least < most:
			rounds = fmt.Sprintf("%d–%d", least, most)
		case most > 0:
			rounds = fmt.Sprint(most)
		}
		rows = append(rows,
			[]string{place.Name, place.Description, rounds, fmt.Sprintf("%s, %d CPUs", place.Machine, place.CPUs),
				join(place.Go, inC), join(place.Date, place.Commit)})
	}
	if len(rows) > 0 {
		p.rows([]string{"where", "", "rounds", "machine", "versions", "date, commit"}, rows)
	}
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

type page struct {
	run *Run
	b   strings.Builder
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

// rows prints a table.
func (p *page) rows(head []string, rows [][]string) {
	p.printf("| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, r := range rows {
		p.printf("| %s |\n", strings.Join(r, " | "))
	}
	p.printf("\n")
}

func (p *page) place(place Place) {
	p.printf("### %s\n\n", place.Name)
	p.perftest(place.Name, "Latency, ratios of the typical time", "_lat", "typical")
	p.perftest(place.Name, "Latency, ratios of the 99th percentile", "_lat", "99 %")
	p.perftest(place.Name, "Latency, ratios of the shortest time, which other load affects least", "_lat", "least")
	p.perftest(place.Name, "Rate, ratios of messages a second", "_bw", "rate")
	p.perftest(place.Name, "Rate, ratios of the peak", "_bw", "peak")
	p.variants(place.Name)
	p.grown(place.Name)
	p.requests(place.Name)
	p.steps(place.Name, "objects", "Creating and destroying objects, each", "number")
	p.steps(place.Name, "cmtime", "Connecting, each", "connections")
	p.memory(place.Name)
	p.rstream(place.Name)
	p.messages(place.Name)
	p.churned(place.Name)
}

// ratio formats the ratio of Go to C with its spread.
func (s Series) ratio() string {
	r, err := s.Ratio(Go, C)
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("%.2f", r.Median)
	if r.Rounds > 1 {
		text += fmt.Sprintf(" (%.2f–%.2f)", r.Low, r.High)
	}
	if !s.AsGood(r) {
		return "**" + text + "**"
	}
	return text
}

// perftest prints a table of tests by message size.
func (p *page) perftest(place, title, suffix, figure string) {
	type cell struct {
		test string
		size int
	}
	cells := map[cell]string{}
	var tests []string
	var sizes []int
	for _, s := range p.run.Series {
		if s.Place != place || s.Figure != figure || !strings.HasSuffix(s.Test, suffix) { // not tests with options
			continue
		}
		if !slices.Contains(tests, s.Test) {
			tests = append(tests, s.Test)
		}
		if !slices.Contains(sizes, s.At) {
			sizes = append(sizes, s.At)
		}
		cells[cell{s.Test, s.At}] = s.ratio()
	}
	if len(tests) == 0 {
		return
	}
	p.printf("#### %s\n\n", title)
	slices.Sort(sizes)
	head := []string{"bytes"}
	rows := make([][]string, len(tests))
	for _, size := range sizes {
		head = append(head, fmt.Sprint(size))
	}
	for i, t := range tests {
		rows[i] = []string{t}
		for _, size := range sizes { // a test may not have all of them
			rows[i] = append(rows[i], cells[cell{t, size}])
		}
	}
	p.rows(head, rows)
}

// variants prints a table of tests with options, of 64 bytes.
func (p *page) variants(place string) {
	var rows [][]string
	for _, s := range p.run.Series {
		test, options, found := strings.Cut(s.Test, " -")
		if s.Place != place || !found || s.Figure != "typical" && s.Figure != "rate" {
			continue
		}
		goes, c := "", ""
		for _, plain := range p.run.Of(place, test, s.Figure) {
			if plain.At == s.At {
				goes, c = gain(s, plain, Go), gain(s, plain, C)
			}
		}
		rows = append(rows,
			[]string{test + " -" + options, number(s, Go) + goes, number(s, C) + c, unit(place, s.Unit), s.ratio()})
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### Options, 64 bytes (in brackets: divided by the figure without the option)\n\n")
	p.rows([]string{"", Go, C, "", "ratio"}, rows)
}

// gain formats a program's figure with an option divided by that without.
func gain(with, plain Series, who string) string {
	v := Quantile(with.Values[who], 0.5) / Quantile(plain.Values[who], 0.5)
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf(" (%.2f)", v)
}

// grown prints tables of rates and costs by the number of queue pairs.
func (p *page) grown(place string) {
	for _, c := range []struct{ test, figure, title string }{
		{ManyQPs, "rate", "Rate of WRITEs of 64 bytes as queue pairs grow, " + unit(place, "M messages/s")},
		{"requests", "write", "Posting a WRITE as queue pairs grow, " + unit(place, "ns")},
	} {
		all := p.run.Of(place, c.test, c.figure)
		if len(all) < 2 {
			continue
		}
		var rows [][]string
		for _, s := range all {
			rows = append(rows, []string{fmt.Sprint(s.At), number(s, Go), number(s, C), s.ratio()})
		}
		p.printf("#### %s\n\n", c.title)
		p.rows([]string{"queue pairs", Go, C, "ratio"}, rows)
	}
}

// number formats the median of a program's figures.
func number(s Series, who string) string {
	v := Quantile(s.Values[who], 0.5)
	switch {
	case len(s.Values[who]) == 0:
		return ""
	case v < 1:
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// requests prints the costs of requests, including cgo.
func (p *page) requests(place string) {
	var rows [][]string
	for _, s := range p.run.Of(place, "requests", "") {
		if s.At != 1 {
			continue
		}
		cgo := ""
		if r, err := s.Ratio(Go, Cgo); err == nil {
			cgo = fmt.Sprintf("%.2f", r.Median)
		}
		rows = append(rows, []string{s.Figure, number(s, Go), number(s, C), s.ratio(), number(s, Cgo), cgo})
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### A request, %s\n\n", unit(place, "ns"))
	p.printf("The column cgo is a Go program that calls libibverbs. [benchmarks.md](benchmarks.md) explains the rows.\n\n")
	p.rows([]string{"", Go, C, "Go to C", Cgo, "Go to cgo"}, rows)
}

// steps prints figures by their name and number, in us.
func (p *page) steps(place, test, title, count string) {
	var rows [][]string
	for _, s := range p.run.Of(place, test, "") {
		if _, err := s.Ratio(Go, C); err != nil { // a step of one program only
			continue
		}
		rows = append(rows, []string{s.Figure, fmt.Sprint(s.At), number(s, Go), number(s, C), s.ratio()})
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### %s, %s\n\n", title, unit(place, "us"))
	p.rows([]string{"", count, Go, C, "ratio"}, rows)
}

// memory prints the memory that each of many objects takes.
func (p *page) memory(place string) {
	var rows [][]string
	for _, s := range p.run.Of(place, Memory, "") {
		rows = append(rows, []string{s.Figure, fmt.Sprint(s.At), number(s, Go), number(s, C), s.ratio()})
	}
	if len(rows) > 0 {
		p.printf("#### Memory of the process for each object, bytes\n\n")
		p.rows([]string{"", "number", Go, C, "ratio"}, rows)
	}
}

// rstream prints the times of transfers over rsockets, and over TCP.
func (p *page) rstream(place string) {
	var rows [][]string
	for _, s := range p.run.Of(place, RsocketTest, "") {
		tcp := ""
		if r, err := s.Ratio(Go, TCP); err == nil {
			tcp = fmt.Sprintf("%.2f", r.Median)
		}
		rows = append(rows, []string{s.Figure, fmt.Sprint(s.At), number(s, Go), number(s, C), s.ratio(), number(s, TCP), tcp})
	}
	if len(rows) > 0 {
		p.printf("#### A transfer between two programs, %s\n\n", unit(place, "us"))
		p.printf("Both sides send in turn: one transfer, or many in a row. Calls sleep until there is data (`-T b`), or poll without\n")
		p.printf("pause. TCP is the C program with `-T s`.\n\n")
		p.rows([]string{"transfers", "bytes", Go, C, "ratio", TCP, "Go to TCP"}, rows)
	}
}

// benchmarks prints the results of Go's own benchmarks.
func (p *page) benchmarks() {
	if len(p.run.Benchmarks) == 0 {
		return
	}
	p.printf("### Without a device\n\n`go test -bench` on queues in memory: the smallest of many short runs, for percentiles and maxima the\n")
	p.printf("median of five, for allocations the largest.\n\n")
	var rows [][]string
	for _, b := range p.run.Benchmarks {
		var cells []string
		for _, unit := range []string{"ns/WR", "ns/CQE", "p50-ns", "p99-ns", "p99.9-ns", "max-ns", "ns/op"} {
			if v, ok := b.Values[unit]; ok && (unit != "ns/op" || len(cells) == 0) {
				cells = append(cells, fmt.Sprintf("%.4g %s", v, unit))
			}
		}
		if v, ok := b.Values["allocs/op"]; ok {
			cells = append(cells, fmt.Sprintf("%.0f allocs/op", v))
		}
		rows = append(rows, []string{b.Name, strings.Join(cells, ", ")})
	}
	p.rows([]string{"benchmark", ""}, rows)
}

// repeating prints the commands that repeat the measurements.
func (p *page) repeating() {
	p.printf("## How to repeat it\n\n")
	p.rows([]string{"what", "command"}, [][]string{
		{"everything", "`make bench`: on two CPUs, from nothing, about 35 minutes for rxe, mlx5, cost and native," +
			" and 10 for messages; rsocket comes on top"},
		{"one part anew, with the other figures of the file", "`go run -C testbed ./bench -only messages`," +
			" `go run -C bench/report . ../../docs/go-and-c.json`"},
		{"one place, few rounds",
			"`go run -C testbed ./bench -only mlx5 -rounds 2 -o /tmp/x.json`, `go run -C bench/report . /tmp/x.json`"},
		{"two real hosts", "`make bench SERVER=root@a CLIENT=root@b ADDRESS=10.0.0.1 DEVICE=mlx5_0`"},
	})
}
