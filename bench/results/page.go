package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// ManyQPs is the test that has more and more queue pairs.
const ManyQPs = "write_bw by queue pairs"

// Page is a run as Markdown. The charts are in a directory beside it.
func (r *Run) Page() string {
	p := &page{run: r}
	p.printf("# Go beside C, measured\n\n")
	p.printf("`make bench` writes this page. Each pair of programs ran in turn, %d times, in an order that changed; a ratio is the median\n", r.Rounds)
	p.printf("of Go's figure divided by C's in the same round, with the quartiles in brackets. Below 1 Go needs less time; rates\n")
	p.printf("are better above 1. A figure in **bold** is one where Go is behind by more than the spread.\n")
	p.printf("[performance.md](performance.md) has the reasons, and what to do for speed. Emulated machines and software devices\n")
	p.printf("say nothing of what adapters do: the ratios are what counts.\n\n")
	p.rows([]string{"", ""}, [][]string{
		{"date, commit", r.Date + ", " + r.Commit}, {"machine", fmt.Sprintf("%s, %d CPUs", r.Machine, r.CPUs)},
		{"Go", r.Go}, {"C", join(r.Library, r.C)},
	})
	for _, place := range r.Places {
		p.place(place)
	}
	p.benchmarks()
	p.again()
	return p.b.String()
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

type page struct {
	run *Run
	b   strings.Builder
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

// rows is a table.
func (p *page) rows(head []string, rows [][]string) {
	p.printf("| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, r := range rows {
		p.printf("| %s |\n", strings.Join(r, " | "))
	}
	p.printf("\n")
}

func (p *page) place(place Place) {
	p.printf("## %s\n\n%s.", place.Name, strings.ToUpper(place.Description[:1])+place.Description[1:])
	if place.Commit != p.run.Commit { // a run of a part came later
		p.printf(" Commit %s.", place.Commit)
	}
	p.printf("\n\n")
	p.perftest(place.Name, "Latency, ratios of the typical time", "_lat", "typical")
	p.perftest(place.Name, "Latency, ratios of the 99th percentile", "_lat", "99 %")
	p.perftest(place.Name, "Latency, ratios of the shortest time, which others on the machine touch least", "_lat", "least")
	p.perftest(place.Name, "Rate, ratios of messages a second", "_bw", "rate")
	p.perftest(place.Name, "Rate, ratios of the peak", "_bw", "peak")
	p.variants(place.Name)
	p.grown(place.Name)
	p.requests(place.Name)
	p.steps(place.Name, "objects", "Making and destroying objects, each", "how many")
	p.steps(place.Name, "cmtime", "Connecting, each", "connections")
	for _, c := range p.run.Charts() {
		if strings.Contains(c.File, "-"+place.Name+"-") || strings.HasSuffix(c.File, "-"+place.Name+".svg") {
			p.printf("![%s](charts/%s)\n", c.Title, c.File)
		}
	}
	p.printf("\n")
}

// ratio is one of a table, with its spread.
func (s Series) ratio() string {
	r, err := s.Ratio(Go, C)
	if err != nil {
		return ""
	}
	text := fmt.Sprintf("%.2f", r.Median)
	if r.Rounds > 1 {
		text += fmt.Sprintf(" (%.2f–%.2f)", r.Low, r.High)
	}
	if !s.Holds(r) {
		return "**" + text + "**"
	}
	return text
}

// perftest is a table of tests by sizes.
func (p *page) perftest(place, title, suffix, figure string) {
	head, rows := []string{"bytes"}, map[string][]string{}
	var tests []string
	for _, s := range p.run.Series {
		if s.Place != place || s.Figure != figure || !strings.HasSuffix(s.Test, suffix) { // others have options
			continue
		}
		if rows[s.Test] == nil {
			tests = append(tests, s.Test)
			rows[s.Test] = []string{s.Test}
		}
		if size := fmt.Sprint(s.At); !slices.Contains(head, size) {
			head = append(head, size)
		}
		rows[s.Test] = append(rows[s.Test], s.ratio())
	}
	if len(tests) == 0 {
		return
	}
	p.printf("### %s\n\n", title)
	var table [][]string
	for _, t := range tests {
		table = append(table, rows[t])
	}
	p.rows(head, table)
}

// variants are tests with options, of 64 bytes.
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
		rows = append(rows, []string{test + " -" + options, number(s, Go) + goes, number(s, C) + c, s.Unit, s.ratio()})
	}
	if len(rows) == 0 {
		return
	}
	p.printf("### Options, 64 bytes (in brackets: divided by the figure without the option)\n\n")
	p.rows([]string{"", Go, C, "", "ratio"}, rows)
}

// gain is what an option makes of a program's figure.
func gain(with, plain Series, who string) string {
	v := Quantile(with.Values[who], 0.5) / Quantile(plain.Values[who], 0.5)
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf(" (%.2f)", v)
}

// grown is what becomes of rates and costs as queue pairs grow in number.
func (p *page) grown(place string) {
	for _, c := range []struct{ test, figure, title string }{
		{ManyQPs, "rate", "Rate of WRITEs of 64 bytes as queue pairs grow, million messages/s"},
		{"requests", "write", "Posting a WRITE as queue pairs grow, " + unit(place)},
	} {
		all := p.run.Of(place, c.test, c.figure)
		if len(all) < 2 {
			continue
		}
		var rows [][]string
		for _, s := range all {
			rows = append(rows, []string{fmt.Sprint(s.At), number(s, Go), number(s, C), s.ratio()})
		}
		p.printf("### %s\n\n", c.title)
		p.rows([]string{"queue pairs", Go, C, "ratio"}, rows)
	}
}

// number is a program's median.
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

// requests is what requests cost, through cgo too.
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
	p.printf("### A request, %s\n\nThe column cgo is a Go program that calls libibverbs. [benchmarks.md](benchmarks.md) says what each row is.\n\n", unit(place))
	p.rows([]string{"", Go, C, "Go to C", Cgo, "Go to cgo"}, rows)
}

// steps are figures by their name and number, in us.
func (p *page) steps(place, test, title, count string) {
	var rows [][]string
	for _, s := range p.run.Of(place, test, "") {
		if _, err := s.Ratio(Go, C); err != nil { // a step that one of them has not
			continue
		}
		rows = append(rows, []string{s.Figure, fmt.Sprint(s.At), number(s, Go), number(s, C), s.ratio()})
	}
	if len(rows) == 0 {
		return
	}
	unit := "us"
	if strings.HasPrefix(place, counted) {
		unit = "thousands of instructions"
	}
	p.printf("### %s, %s\n\n", title, unit)
	p.rows([]string{"", count, Go, C, "ratio"}, rows)
}

// benchmarks are Go's own.
func (p *page) benchmarks() {
	if len(p.run.Benchmarks) == 0 {
		return
	}
	p.printf("## Without a device\n\n`go test -bench` on queues in memory; the smallest of many short runs, of five for tails.\n\n")
	var rows [][]string
	for _, b := range p.run.Benchmarks {
		var cells []string
		for _, unit := range []string{"ns/WR", "ns/CQE", "p50-ns", "p99-ns", "p99.9-ns", "max-ns", "ns/op"} {
			if v, ok := b.Values[unit]; ok && (unit != "ns/op" || len(cells) == 0) {
				cells = append(cells, fmt.Sprintf("%.4g %s", v, unit))
			}
		}
		cells = append(cells, fmt.Sprintf("%.0f allocs/op", b.Values["allocs/op"]))
		rows = append(rows, []string{b.Name, strings.Join(cells, ", ")})
	}
	p.rows([]string{"benchmark", ""}, rows)
}

func (p *page) again() {
	p.printf("## Again\n\n")
	p.rows([]string{"what", "how"}, [][]string{
		{"all", "`make bench`"},
		{"a part, few rounds", "`go run ./testbed/bench -only mlx5 -rounds 2 -o bin/x.json`, `go run -C bench/report . $PWD/bin/x.json`"},
		{"two real hosts", "`make bench SERVER=root@a CLIENT=root@b ADDRESS=10.0.0.1 DEVICE=mlx5_0`"},
	})
}
