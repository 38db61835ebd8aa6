package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

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
		rows[i] = []string{fmt.Sprintf("%s (`%s`)", operation(t), t)}
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
		test, _, found := strings.Cut(s.Test, " -")
		if s.Place != place || !found || !s.main() && s.Figure != "99 %" {
			continue
		}
		goes, c := "", ""
		for _, plain := range p.run.Of(place, test, s.Figure) {
			if plain.At == s.At {
				goes, c = gain(s, plain, Go), gain(s, plain, C)
			}
		}
		name := optionName(s.Test)
		if s.Figure != "rate" {
			name = join(name, figureNames[s.Figure])
		}
		rows = append(rows, []string{name, number(s, Go) + goes, number(s, C) + c, unit(place, s.Unit), s.ratio()})
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

// grown prints tables of rates and costs by the number of queues.
func (p *page) grown(place string) {
	for _, c := range []struct{ test, figure, queues, title string }{
		{ManyQPs, "rate", "queue pairs", "Rate of WRITEs of 64 bytes as queue pairs grow, " + unit(place, "M messages/s")},
		{"requests", "write", "queue pairs", "Posting a WRITE as queue pairs grow, " + unit(place, "ns")},
		{ParallelPosts, "post", "threads or goroutines, each with a queue pair",
			"Posting a WRITE, data inline, while others post, " + unit(place, "ns")},
		{IdleQueues, "wait", "idle queues",
			"Waiting for the completion of a WRITE as idle queues grow, " + unit(place, "us")},
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
		p.rows([]string{c.queues, Go, C, "ratio"}, rows)
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
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// otherRequests prints the costs of requests of other types of queue pairs, and of other requests.
func (p *page) otherRequests(place string) {
	var rows [][]string
	for _, s := range p.run.Of(place, OtherRequests, "") {
		rows = append(rows, []string{s.short(), number(s, Go), number(s, C), s.ratio()})
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### A request of UD and XRC, and other requests of RC, %s\n\n", unit(place, "ns"))
	p.rows([]string{"", Go, C, "Go to C"}, rows)
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
		rows = append(rows, []string{s.short(), number(s, Go), number(s, C), s.ratio(), number(s, Cgo), cgo})
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### A request, %s\n\n", unit(place, "ns"))
	p.printf("The column cgo is a Go program that calls libibverbs. A request of 32 in a call or a batch is one of the\n")
	p.printf("32. [benchmarks.md](benchmarks.md) explains the rows.\n\n")
	p.rows([]string{"", Go, C, "Go to C", Cgo, "Go to cgo"}, rows)
}

// steps prints figures by their name and number, in us.
func (p *page) steps(place, test, title, count string) {
	var rows [][]string
	for _, s := range p.run.Of(place, test, "") {
		if _, err := s.Ratio(Go, C); err != nil { // a step of one program only
			continue
		}
		rows = append(rows, []string{s.short(), fmt.Sprint(s.At), number(s, Go), number(s, C), s.ratio()})
	}
	if len(rows) == 0 {
		return
	}
	p.printf("#### %s, %s\n\n", title, unit(place, "us"))
	p.rows([]string{"step", count, Go, C, "ratio"}, rows)
}

// memory prints the memory that each of many objects takes.
func (p *page) memory(place string) {
	var rows [][]string
	for _, s := range p.run.Of(place, Memory, "") {
		rows = append(rows, []string{s.short(), fmt.Sprint(s.At), number(s, Go), number(s, C), s.ratio()})
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
		p.printf("Both sides send in turn: one transfer, or many in a row. Calls sleep until there is data (`-T b`),\n")
		p.printf("or poll without pause. TCP is the C program with `-T s`.\n\n")
		p.rows([]string{"transfers", "bytes", Go, C, "ratio", TCP, "Go to TCP"}, rows)
	}
}

// benchmarks prints the results of Go's own benchmarks.
func (p *page) benchmarks() {
	if len(p.run.Benchmarks) == 0 {
		return
	}
	p.printf("### %s\n\n", nameOf(Native).title)
	p.printf("`go test -bench` on queues in memory: the smallest of many short runs, for percentiles and maxima\n")
	p.printf("the median of five, for allocations the largest.\n\n")
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
