package results

import (
	"fmt"
	"slices"
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
	{"post and poll", func(s Series) bool { return s.Test == "requests" && s.At == 1 }},
	{"post, other types and requests", func(s Series) bool { return s.Test == OtherRequests }},
	{"post, many queue pairs", func(s Series) bool { return s.Test == "requests" && s.At > 1 && s.Figure == "write" }},
	{"post, many goroutines", func(s Series) bool { return s.Test == ParallelPosts }},
	{"memory of objects", func(s Series) bool { return s.Test == Memory }},
	{"latency, p50", plain("_lat", "typical")},
	{"latency, p99", plain("_lat", "99 %")},
	{"latency, shortest", plain("_lat", "least")},
	{"message rate", plain("_bw", "rate")},
	{"message rate, peak", plain("_bw", "peak")},
	{"message rate, many queue pairs", func(s Series) bool { return s.Test == ManyQPs && s.Figure == "rate" }},
	{"waits for events", func(s Series) bool {
		return strings.HasSuffix(s.Test, " -e") && (s.main() || s.Figure == "99 %")
	}},
	{"waits, many idle queues", func(s Series) bool { return s.Test == IdleQueues }},
	{"other options of perftest", func(s Series) bool { return strings.Contains(s.Test, " -") && s.main() }},
	{"messages, READ, WRITE", func(s Series) bool { return s.Test == MessagesTest && !s.connects() }},
	{"rsockets", func(s Series) bool { return s.Test == RsocketTest }},
	{"create and destroy objects", func(s Series) bool { return s.Test == "objects" }},
	{"connect", func(s Series) bool { return s.Test == "cmtime" || s.connects() }},
}

// plain matches tests without options.
func plain(suffix, figure string) func(Series) bool {
	return func(s Series) bool { return strings.HasSuffix(s.Test, suffix) && s.Figure == figure }
}

// main reports whether a figure of perftest is the one that stands for its test.
func (s Series) main() bool { return s.Figure == "typical" || s.Figure == "rate" }

// connects reports whether a figure of MessagesTest is about connections.
func (s Series) connects() bool {
	figure, _ := percentileOf(s.Figure)
	return s.Test == MessagesTest && figure == connect
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
		t.worst, t.which = cost, s.words()
	}
}

func (t *tally) row(what, measured string) []string {
	worst := ""
	if t.which != "" {
		worst = fmt.Sprintf("%.2f: %s", t.worst, t.which)
	}
	return []string{what, measured, fmt.Sprintf("%.2f", Quantile(t.costs, 0.5)),
		fmt.Sprintf("%d of %d", t.asGood, len(t.costs)), worst}
}

// A group holds the figures of one kind at one place.
type group struct {
	kind, measured string
	tally
}

// groups returns the groups that have figures, in the order of kinds and places.
func (r *Run) groups() (all []*group) {
	for _, k := range kinds {
		for _, p := range r.ordered() {
			name := nameOf(p.Name)
			figure := name.figure
			switch {
			case k.name == "memory of objects":
				figure = "bytes"
			case strings.HasPrefix(k.name, "message rate"):
				figure = "messages per second"
			}
			g := &group{kind: k.name, measured: figure + " on " + name.device}
			for _, s := range r.Series {
				if s.Place != p.Name || kindOf(s) != k.name {
					continue
				}
				if ratio, err := s.Ratio(Go, C); err == nil { // err: a figure of one program only
					g.add(s, ratio)
				}
			}
			if len(g.costs) > 0 {
				all = append(all, g)
			}
		}
	}
	return all
}

// summary has a row for each group, and one for all.
func (r *Run) summary() (rows [][]string) {
	for _, g := range r.groups() {
		rows = append(rows, g.row(g.kind, g.measured))
	}
	if len(rows) == 0 {
		return nil
	}
	all := r.total()
	return append(rows, all.row("**all**", ""))
}

// total counts the figures of all groups.
func (r *Run) total() (all tally) {
	for _, g := range r.groups() {
		all.asGood += g.asGood
		all.costs = slices.Concat(all.costs, g.costs)
	}
	return all
}

// waiting are the kinds of operations that wait, with their figures of MessagesTest.
var waiting = []struct {
	what    string
	figures []string
}{
	{"READ and WRITE with their waits", []string{"read", "write"}},
	{"a message of 64 bytes and its echo", []string{"small"}},
	{"messages of 1 MiB", []string{"large", "offered"}},
	{"echoes on 100 connections at once", []string{"many"}},
	{"connecting and closing", []string{connect}},
}

// verdicts returns a sentence for each alternative to Go: where Go takes fewer instructions, and where more.
func (r *Run) verdicts() (all []string) {
	for _, who := range []string{Cgo, C, TCP} {
		var less, more []string
		add := func(what string, series []Series) {
			var ratios []float64
			for _, s := range series {
				if ratio, err := s.Ratio(Go, who); err == nil {
					ratios = append(ratios, ratio.Median)
				}
			}
			if len(ratios) == 0 {
				return
			}
			median := Quantile(ratios, 0.5)
			text := fmt.Sprintf("%s (%.2f", what, median)
			if len(ratios) > 1 {
				text += fmt.Sprintf("; %.2f to %.2f", slices.Min(ratios), slices.Max(ratios))
			}
			text += ")"
			if median <= 1 {
				less = append(less, text)
			} else {
				more = append(more, text)
			}
		}
		add("posting and polling", slices.DeleteFunc(r.Of(counted, "requests", ""), func(s Series) bool { return s.At != 1 }))
		for _, k := range waiting {
			var series []Series
			for _, figure := range k.figures {
				series = append(series, r.Of(MessageInstructions, MessagesTest, figure)...)
			}
			add(k.what, series)
		}
		if len(less)+len(more) > 0 {
			all = append(all, verdict(who, less, more))
		}
	}
	return all
}

func verdict(who string, less, more []string) string {
	text := "goverbs takes"
	if len(less) > 0 {
		text += fmt.Sprintf(" **fewer than %s** for %s", who, strings.Join(less, ", "))
	}
	if len(less) > 0 && len(more) > 0 {
		text += ", and"
	}
	if len(more) > 0 {
		text += fmt.Sprintf(" **more than %s** for %s", who, strings.Join(more, ", "))
	}
	return text + "."
}
