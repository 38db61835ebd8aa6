package results

import (
	"fmt"
	"strings"
)

// A kind is a group of figures in the summary.
type kind struct {
	name string
	has  func(Series) bool
}

// kinds lists all kinds, in the order of the summary. A series belongs to the first
// kind that has it, or to none.
var kinds = []kind{
	{"latency, typical", plain("_lat", "typical")},
	{"latency, 99 %", plain("_lat", "99 %")},
	{"latency, shortest", plain("_lat", "least")},
	{"rate", plain("_bw", "rate")},
	{"rate, peak", plain("_bw", "peak")},
	{"tests with options", func(s Series) bool {
		return strings.Contains(s.Test, " -") && (s.Figure == "typical" || s.Figure == "rate")
	}},
	{"as queue pairs grow", func(s Series) bool {
		return s.Test == ManyQPs && s.Figure == "rate" || s.Test == "requests" && s.At > 1 && s.Figure == "write"
	}},
	{"requests", func(s Series) bool { return s.Test == "requests" && s.At == 1 }},
	{"memory", func(s Series) bool { return s.Test == Memory }},
	{"objects", func(s Series) bool { return s.Test == "objects" }},
	{"rstream", func(s Series) bool { return s.Test == RsocketTest }},
	{"messages and access", func(s Series) bool { return s.Test == MessagesTest }},
	{"connecting", func(s Series) bool { return s.Test == "cmtime" }},
}

// plain matches tests without options.
func plain(suffix, figure string) func(Series) bool {
	return func(s Series) bool { return strings.HasSuffix(s.Test, suffix) && s.Figure == figure }
}

func kindOf(s Series) string {
	for _, k := range kinds {
		if k.has(s) {
			return k.name
		}
	}
	return ""
}

// A tally counts figures, those that are as good as C's, and the highest cost of
// the others.
type tally struct {
	asGood int
	costs  []float64
	worst  float64
	which  string // the figure with the worst cost
}

func (t *tally) add(s Series, r Ratio) {
	cost := s.Cost(r)
	t.costs = append(t.costs, cost)
	switch {
	case s.AsGood(r):
		t.asGood++
	case cost > t.worst:
		t.worst, t.which = cost, fmt.Sprintf("%s %s, %d", s.Test, s.Figure, s.At)
	}
}

func (t *tally) row(where, what string) []string {
	worst := ""
	if t.which != "" {
		worst = fmt.Sprintf("%.2f (%s)", t.worst, t.which)
	}
	return []string{where, what, fmt.Sprintf("%d of %d", t.asGood, len(t.costs)),
		fmt.Sprintf("%.2f", Quantile(t.costs, 0.5)), worst}
}

// summary has a row for each place, and one for each kind of its figures.
func (r *Run) summary() (rows [][]string) {
	for _, p := range r.Places {
		var all tally
		of := map[string]*tally{}
		for _, s := range r.Series {
			name := kindOf(s)
			ratio, err := s.Ratio(Go, C)
			if s.Place != p.Name || name == "" || err != nil { // err: a figure of one program only
				continue
			}
			if of[name] == nil {
				of[name] = &tally{}
			}
			all.add(s, ratio)
			of[name].add(s, ratio)
		}
		if len(all.costs) == 0 {
			continue
		}
		rows = append(rows, all.row("**"+p.Name+"**", "**all**"))
		for _, k := range kinds {
			if t := of[k.name]; t != nil {
				rows = append(rows, t.row("", k.name))
			}
		}
	}
	return rows
}
