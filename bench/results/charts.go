package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Chart describes a chart that bench/report draws: lines, or bars in groups.
type Chart struct {
	File, Title, X, Y string
	LogX, LogY        bool
	Lines             []Line
	Groups            []string
	Bars              []Bars
}

// A Line is a line of a chart. Low and High, if not empty, are the quartiles of
// each point.
type Line struct {
	Name            string
	X, Y, Low, High []float64
}

// Bars holds the bars of one program, one for each group.
type Bars struct {
	Name   string
	Values []float64
}

var programs = []string{Go, C, Cgo}

// Charts returns the charts for which the run has figures.
func (r *Run) Charts() (all []Chart) {
	for _, p := range r.Places {
		all = append(all, r.distributions(p.Name)...)
		for _, test := range []string{"send_lat", "write_lat"} {
			all = r.bySize(all, p.Name, test, "typical",
				Chart{Title: test + ", typical time, " + p.Name, X: "bytes", Y: unit(p.Name, "us"), LogX: true, LogY: true})
		}
		for _, test := range []string{"send_bw", "write_bw"} {
			all = r.bySize(all, p.Name, test, "rate",
				Chart{Title: test + ", " + p.Name, X: "bytes", Y: unit(p.Name, "M messages/s"), LogX: true, LogY: true})
		}
		all = r.bySize(all, p.Name, ManyQPs, "rate", Chart{Title: "write_bw of 64 bytes as queue pairs grow, " + p.Name,
			X: "queue pairs", Y: unit(p.Name, "M messages/s"), LogX: true})
		all = r.bySize(all, p.Name, "requests", "write",
			Chart{Title: "posting a WRITE as queue pairs grow", X: "queue pairs", Y: unit(p.Name, "ns"), LogX: true})
		all = append(all, r.costs(p.Name)...)
	}
	return all
}

// counted is the prefix of the names of places that count instructions.
const counted = "instructions"

// unit returns the unit in which a place measures. On a place that counts
// instructions, one instruction takes the place of a nanosecond.
func unit(place, of string) string {
	if !strings.HasPrefix(place, counted) {
		return of
	}
	switch of {
	case "ns":
		return counted
	case "us":
		return "thousands of " + counted
	case "M messages/s":
		return "messages in a thousand " + counted
	}
	return of
}

func file(parts ...string) string {
	return strings.ReplaceAll(strings.Join(parts, "-"), " ", "-") + ".svg"
}

// distributions returns the charts of latency distributions. Their x axis is
// 1/(1-quantile), which shows the tail: the 99th percentile is at 100.
func (r *Run) distributions(place string) (all []Chart) {
	var tests []string
	for _, d := range r.Distributions {
		if d.Place == place && !slices.Contains(tests, d.Test) {
			tests = append(tests, d.Test)
		}
	}
	for _, test := range tests {
		c := Chart{File: file("distribution", place, test), X: "one message of so many took at least", Y: unit(place, "us"),
			LogX: true, LogY: true}
		for _, d := range r.Distributions {
			if d.Place != place || d.Test != test {
				continue
			}
			c.Title = fmt.Sprintf("%s of %d bytes, %s", test, d.At, place)
			l := Line{Name: d.Who}
			last := len(d.Quantiles) - 1
			for i, q := range d.Quantiles[:max(last, 0)] { // without the maximum, which would be at infinity
				l.X, l.Y = append(l.X, float64(last)/float64(last-i)), append(l.Y, q)
			}
			c.Lines = append(c.Lines, l)
		}
		all = append(all, c)
	}
	return all
}

// bySize adds a chart of a figure by size or by number, if it has at least two
// points.
func (r *Run) bySize(all []Chart, place, test, figure string, c Chart) []Chart {
	c.File = file(figure, place, test)
	series := r.Of(place, test, figure)
	for _, who := range programs {
		l := Line{Name: who}
		for _, s := range series {
			if v := s.Values[who]; len(v) > 0 {
				l.X, l.Y = append(l.X, float64(s.At)), append(l.Y, Quantile(v, 0.5))
				l.Low, l.High = append(l.Low, Quantile(v, 0.25)), append(l.High, Quantile(v, 0.75))
			}
		}
		if len(l.X) > 1 {
			c.Lines = append(c.Lines, l)
		}
	}
	if len(c.Lines) == 0 {
		return all
	}
	return append(all, c)
}

// costs returns the chart of the costs of requests.
func (r *Run) costs(place string) []Chart {
	c := Chart{File: file("cost", place), Title: "a request", Y: unit(place, "ns")}
	bars := make([]Bars, len(programs))
	for _, s := range r.Of(place, "requests", "") {
		if s.At != 1 || len(s.Values[Go]) == 0 || len(s.Values[C]) == 0 {
			continue
		}
		c.Groups = append(c.Groups, s.Figure)
		for i, who := range programs {
			v := Quantile(s.Values[who], 0.5)
			if math.IsNaN(v) {
				v = 0
			}
			bars[i].Name = who
			bars[i].Values = append(bars[i].Values, v)
		}
	}
	if len(c.Groups) == 0 {
		return nil
	}
	c.Bars = slices.DeleteFunc(bars, func(b Bars) bool { return slices.Max(b.Values) == 0 })
	return []Chart{c}
}
