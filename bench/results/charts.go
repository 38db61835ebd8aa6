package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Chart describes a chart that bench/report draws: lines, or rows of bars.
type Chart struct {
	File, Title, Subtitle string
	X, Y                  string // of lines, what the axes show; of bars, X is the unit
	LogX, LogY            bool   // of bars, LogX
	Ticks                 []Tick // of the x axis of lines
	Lines                 []Line
	Rows                  []string
	Bars                  []Bars
	Costs                 bool // bars are costs: they begin at 1, on a logarithmic axis
}

// A Tick is a labelled position of an axis.
type Tick struct {
	At    float64
	Label string
}

// A Line is a line of a chart. Low and High, if not empty, are the quartiles of
// each point. The line of a tail is dashed, and has no entry in the legend.
type Line struct {
	Name            string
	Tail            bool
	X, Y, Low, High []float64
}

// Bars holds the bars of one program, one for each row. A value that is not a
// number has no bar. Tails, if not empty, are where lines from the ends of the
// bars end; one that is not a number has no line.
type Bars struct {
	Name          string
	Label         string // the program's name in the legend
	Values, Tails []float64
}

var programs = []string{Go, C, Cgo}

var (
	goBars  = Bars{Name: Go, Label: "Go"}
	cBars   = Bars{Name: C, Label: "C"}
	cgoBars = Bars{Name: Cgo, Label: "Go that calls C (cgo)"}
)

const (
	lowerIsBetter  = ": lower is better"
	higherIsBetter = ": higher is better"
)

// Charts returns the charts for which the run has figures.
func (r *Run) Charts() (all []Chart) {
	all = append(all, r.costs()...)
	for _, p := range r.ordered() {
		all = append(all, r.requestCharts(p.Name)...)
		all = append(all, r.messageCharts(p.Name)...)
		all = append(all, r.rsocketCharts(p.Name)...)
		all = append(all, r.objectCharts(p.Name)...)
	}
	for _, p := range r.ordered() {
		all = append(all, r.distributions(p.Name)...)
		all = append(all, r.sizes(p.Name)...)
		all = append(all, r.queuePairs(p.Name)...)
	}
	return all
}

// first are the charts for the main page, in its order, if the run has them. The chart of costs is there besides.
var first = []string{file("messages", Messages), file("messages", MessageInstructions), file("requests", counted),
	file("rsockets", Rsocket)}

// chosen divides the charts, without that of costs, into those of the main page and the others. The main page has as
// many as first names, so that a run of other places has charts there, too.
func (r *Run) chosen() (shown, others []Chart) {
	at := func(c Chart) int {
		if i := slices.Index(first, c.File); i >= 0 {
			return i
		}
		return len(first)
	}
	all := slices.DeleteFunc(r.Charts(), func(c Chart) bool { return c.Costs })
	slices.SortStableFunc(all, func(a, b Chart) int { return at(a) - at(b) })
	n := min(len(first), len(all))
	return all[:n], all[n:]
}

// costs returns the chart of the summary.
func (r *Run) costs() []Chart {
	c := Chart{File: "costs.svg", Title: "What Go costs, divided by what C costs" + lowerIsBetter,
		Subtitle: "1 is equal, 2 is twice as much in Go; each bar ends at the median of a group of figures, its line at " +
			"the highest", Costs: true, X: "Go's cost divided by C's"}
	costs := Bars{}
	for _, g := range r.groups() {
		c.Rows = append(c.Rows, g.kind+": "+g.measured)
		costs.Values = append(costs.Values, Quantile(g.costs, 0.5))
		costs.Tails = append(costs.Tails, slices.Max(g.costs))
	}
	if len(c.Rows) == 0 {
		return nil
	}
	c.Bars = []Bars{costs}
	return []Chart{c}
}

// counted is the prefix of the names of places that count instructions.
const counted = "instructions"

// unit returns the unit in which a place measures. On a place that counts
// instructions, one instruction takes the place of a nanosecond.
func unit(place, of string) string {
	if strings.HasPrefix(place, counted) {
		switch of {
		case "ns":
			return counted
		case "us":
			return "thousands of " + counted
		case "M messages/s":
			return "messages in a thousand " + counted
		}
	}
	if of == "us" {
		return "µs"
	}
	return of
}

// on says where the figures of a chart were measured.
func on(place string) string { return "measured on " + nameOf(place).device }

// amount names what unit counts, for the beginning of a title.
func amount(place string) string {
	if strings.HasPrefix(place, counted) {
		return "Instructions"
	}
	return "Time"
}

func file(parts ...string) string {
	return strings.ReplaceAll(strings.Join(parts, "-"), " ", "-") + ".svg"
}

// barChart adds the bars of the series that both Go and C have, one row for each.
// The bars are those of the programs that bars names.
func barChart(c Chart, all []Series, row func(Series) string, bars ...Bars) []Chart {
	c.Bars = bars
	for _, s := range all {
		if len(s.Values[Go]) == 0 || len(s.Values[C]) == 0 {
			continue
		}
		c.Rows = append(c.Rows, row(s))
		for i, b := range bars {
			c.Bars[i].Values = append(b.Values, Quantile(s.Values[b.Name], 0.5))
		}
	}
	if len(c.Rows) == 0 {
		return nil
	}
	c.Bars = slices.DeleteFunc(c.Bars, func(b Bars) bool {
		return !slices.ContainsFunc(b.Values, func(v float64) bool { return !math.IsNaN(v) })
	})
	return []Chart{c}
}

// requestCharts returns the charts of the costs of requests.
func (r *Run) requestCharts(place string) []Chart {
	all := slices.DeleteFunc(r.Of(place, "requests", ""), func(s Series) bool { return s.At != 1 })
	c := Chart{File: file("requests", place), Title: amount(place) + " per request" + lowerIsBetter,
		Subtitle: on(place), X: unit(place, "ns")}
	others := c
	others.File = file("other-requests", place)
	others.Title = amount(place) + " per request of UD and XRC, and of other requests" + lowerIsBetter
	return append(barChart(c, all, Series.short, goBars, cBars, cgoBars),
		barChart(others, r.Of(place, OtherRequests, ""), Series.short, goBars, cBars)...)
}

// messageCharts returns the chart of the costs of package rdma, with the 99th percentile of times.
func (r *Run) messageCharts(place string) []Chart {
	all := slices.DeleteFunc(r.Of(place, MessagesTest, ""), func(s Series) bool {
		_, percentile := percentileOf(s.Figure)
		return percentile != "" && percentile != "p50"
	})
	c := Chart{File: file("messages", place), Title: amount(place) + " per message, READ and WRITE" + lowerIsBetter,
		Subtitle: on(place), X: unit(place, "ns")}
	row := func(s Series) string {
		s.Figure, _ = percentileOf(s.Figure)
		return s.short()
	}
	charts := barChart(c, all, row, Bars{Name: Go, Label: "Go, package rdma"}, Bars{Name: CM, Label: "Go, package cm"},
		Bars{Name: C, Label: "C, librdmacm"}, Bars{Name: Cgo, Label: "Go that calls C (cgo)"},
		Bars{Name: TCP, Label: "Go, TCP"}, Bars{Name: Fabric, Label: "C, libfabric"})
	if len(charts) == 0 {
		return nil
	}
	charts[0].X, charts[0].LogX = unit(place, all[0].Unit)+", on a logarithmic axis", true
	if all[0].Unit == "us" {
		charts[0].Subtitle += "; each bar ends at p50 of all messages, its line at p99"
		r.addTails(&charts[0], place, all)
	}
	return charts
}

// addTails adds the 99th percentiles of the medians that the bars show.
func (r *Run) addTails(c *Chart, place string, medians []Series) {
	for _, m := range medians {
		if len(m.Values[Go]) == 0 || len(m.Values[C]) == 0 { // as in barChart
			continue
		}
		figure, _ := percentileOf(m.Figure)
		var tail Series
		for _, s := range r.Of(place, m.Test, figure+".p99") {
			if s.At == m.At {
				tail = s
			}
		}
		for i, b := range c.Bars {
			c.Bars[i].Tails = append(b.Tails, Quantile(tail.Values[b.Name], 0.5))
		}
	}
}

// rsocketCharts returns the chart of transfers of the smallest size over rsockets.
func (r *Run) rsocketCharts(place string) []Chart {
	all := r.Of(place, RsocketTest, "")
	if len(all) == 0 {
		return nil
	}
	all = slices.DeleteFunc(all, func(s Series) bool { return s.At != all[0].At })
	c := Chart{File: file("rsockets", place),
		Title:    fmt.Sprintf("%s per transfer of %s over rsockets%s", amount(place), size(all[0].At), lowerIsBetter),
		Subtitle: on(place) + "; TCP is the same C program on ordinary sockets", X: unit(place, "us")}
	return barChart(c, all, func(s Series) string { return s.Figure }, goBars, cBars,
		Bars{Name: TCP, Label: "C on TCP"})
}

// objectCharts returns the chart of the costs of objects, of many made in a row.
func (r *Run) objectCharts(place string) []Chart {
	all := r.Of(place, "objects", "")
	if len(all) == 0 {
		return nil
	}
	most := all[len(all)-1].At
	all = slices.DeleteFunc(all, func(s Series) bool { return s.At != most })
	c := Chart{File: file("objects", place), Title: amount(place) + " to create and destroy an object" + lowerIsBetter,
		Subtitle: fmt.Sprintf("%s; one of %s in a row", on(place), label(float64(most))), X: unit(place, "us")}
	return barChart(c, all, Series.short, goBars, cBars, cgoBars)
}

// shown are the percentiles of the charts of distributions.
var shown = []struct {
	quantile float64
	label    string
}{{0.5, "p50"}, {0.9, "p90"}, {0.99, "p99"}, {0.999, "p99.9"}}

// distributions returns the charts of latency distributions, from the median on.
// Their x axis is 1/(1-quantile) with the percentiles as labels, which shows the
// tail: the 99th percentile is at 100.
func (r *Run) distributions(place string) (all []Chart) {
	var tests []string
	for _, d := range r.Distributions {
		if d.Place == place && !slices.Contains(tests, d.Test) {
			tests = append(tests, d.Test)
		}
	}
	for _, test := range tests {
		c := Chart{File: file("distribution", place, test), Subtitle: on(place),
			X: "percentile (p99: 99 of 100 messages take at most this long)", Y: unit(place, "us"), LogX: true, LogY: true}
		for _, p := range shown {
			c.Ticks = append(c.Ticks, Tick{1 / (1 - p.quantile), p.label})
		}
		for _, d := range r.Distributions {
			if d.Place == place && d.Test == test {
				c.Title = "Latency of a " + operation(test) + " of " + size(d.At) + lowerIsBetter
				c.Lines = append(c.Lines, d.line())
			}
		}
		all = append(all, c)
	}
	return all
}

// line returns the quantiles from the first to the last percentile that is shown.
func (d Distribution) line() Line {
	l := Line{Name: d.Who}
	n := len(d.Quantiles) - 1
	for i, q := range d.Quantiles {
		const rounding = 1e-9
		if at := float64(i) / float64(n); at >= shown[0].quantile && at <= shown[len(shown)-1].quantile+rounding {
			l.X, l.Y = append(l.X, float64(n)/float64(n-i)), append(l.Y, q)
		}
	}
	return l
}

// operation returns the operation of a test of perftest, such as SEND.
func operation(test string) string {
	name, _, _ := strings.Cut(test, "_")
	return strings.ToUpper(name)
}

// sizes returns the charts of latencies and rates by size.
func (r *Run) sizes(place string) (all []Chart) {
	const x = "bytes in a message"
	subtitle := on(place) + r.spread(place)
	for _, test := range []string{"send_lat", "write_lat", "read_lat"} {
		at := len(all)
		all = r.line(all, place, test, "typical", Chart{Title: "Latency of a " + operation(test) + " by size" + lowerIsBetter,
			Subtitle: subtitle + " of p50; dashed: p99", X: x, Y: unit(place, "us"), LogX: true, LogY: true})
		if len(all) > at {
			all[at].Lines = append(all[at].Lines, r.tails(place, test)...)
		}
	}
	for _, test := range []string{"send_bw", "write_bw"} {
		all = r.line(all, place, test, "rate", Chart{Title: "Rate of " + operation(test) + "s by size" + higherIsBetter,
			Subtitle: subtitle, X: x, Y: unit(place, perSecond), LogX: true, LogY: true})
	}
	return all
}

// queuePairs returns the charts of rates and costs by the number of queues.
func (r *Run) queuePairs(place string) (all []Chart) {
	const x = "queue pairs in the process"
	subtitle := on(place) + r.spread(place)
	all = r.line(all, place, ManyQPs, "rate", Chart{Title: "Rate by number of queue pairs" + higherIsBetter,
		Subtitle: "WRITEs of 64 bytes, " + subtitle, X: x, Y: unit(place, perSecond), LogX: true})
	all = r.line(all, place, "requests", "write", Chart{
		Title:    amount(place) + " per post, by queue pairs" + lowerIsBetter,
		Subtitle: "one WRITE, " + subtitle, X: x, Y: unit(place, "ns"), LogX: true})
	all = r.line(all, place, ParallelPosts, "post", Chart{
		Title:    amount(place) + " per post, by goroutines" + lowerIsBetter,
		Subtitle: "one WRITE, data inline; in C, threads; " + subtitle,
		X:        "goroutines, each with a queue pair", Y: unit(place, "ns"), LogX: true})
	return r.line(all, place, IdleQueues, "wait", Chart{
		Title:    amount(place) + " per wait, by idle queues" + lowerIsBetter,
		Subtitle: "one WRITE and the wait for its completion, " + subtitle,
		X:        "idle queues that are waited for", Y: unit(place, "us"), LogX: true})
}

// spread says what the marks of a chart show.
func (r *Run) spread(place string) string {
	if _, most := r.rounds(place); most > 1 {
		return fmt.Sprintf("; median and quartiles of %d rounds", most)
	}
	return ""
}

// perSecond is the unit of rates in charts. In figures it is M messages/s.
const perSecond = "messages per second"

// tails returns the lines of the 99th percentiles.
func (r *Run) tails(place, test string) (lines []Line) {
	for _, l := range r.linesOf(place, test, "99 %", 1) {
		lines = append(lines, Line{Name: l.Name, Tail: true, X: l.X, Y: l.Y})
	}
	return lines
}

// linesOf returns the lines of a figure by size or by number that have at least two points.
func (r *Run) linesOf(place, test, figure string, scale float64) (lines []Line) {
	for _, who := range programs {
		l := Line{Name: who}
		for _, s := range r.Of(place, test, figure) {
			if v := s.Values[who]; len(v) > 0 {
				l.X, l.Y = append(l.X, float64(s.At)), append(l.Y, scale*Quantile(v, 0.5))
				l.Low, l.High = append(l.Low, scale*Quantile(v, 0.25)), append(l.High, scale*Quantile(v, 0.75))
			}
		}
		if len(l.X) > 1 {
			lines = append(lines, l)
		}
	}
	return lines
}

// line adds a chart of a figure by size or by number, if it has at least two
// points.
func (r *Run) line(all []Chart, place, test, figure string, c Chart) []Chart {
	c.File = file(figure, place, test)
	scale := 1.0
	if c.Y == perSecond {
		scale = 1e6
	}
	c.Lines = r.linesOf(place, test, figure, scale)
	if len(c.Lines) == 0 {
		return all
	}
	for _, at := range c.Lines[0].X {
		c.Ticks = append(c.Ticks, Tick{at, label(at)})
	}
	return append(all, c)
}

// label formats a whole number as a label: 65536 as 64K, 10000 as 10,000.
func label(v float64) string {
	n := int(v)
	switch {
	case n >= 1024 && n%1024 == 0:
		return fmt.Sprintf("%dK", n/1024)
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return fmt.Sprint(n)
}
