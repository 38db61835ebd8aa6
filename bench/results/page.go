package results

import (
	"fmt"
	"slices"
	"strings"
)

// ManyQPs is the test with an increasing number of queue pairs.
const ManyQPs = "write_bw by queue pairs"

// IdleQueues is the test that waits beside an increasing number of idle queues.
const IdleQueues = "waits by idle queues"

// ParallelPosts is the test in which an increasing number of goroutines post, each on
// a queue pair of its own.
const ParallelPosts = "posts by queue pairs"

// Memory is the test that measures the memory of many objects.
const Memory = "memory"

// Page returns the run as Markdown: a summary and the first charts. The charts are files in the directory charts beside
// the page, and appendix is the path of the page with all figures.
func (r *Run) Page(appendix string) string {
	p := &page{run: r, appendix: appendix, charts: "charts/"}
	p.printf("%s", introduction)
	p.failures()
	p.summary()
	shown, _ := r.chosen()
	if len(shown) > 0 {
		p.printf("## Charts\n\n")
		p.wide(shown)
	}
	p.printf("## All figures\n\n")
	p.printf("[The appendix](%s) has them, the other charts, machines, versions and commits.\n\n", appendix)
	p.repeating()
	return p.b.String()
}

// Appendix returns the rest of the run as Markdown: where it was measured, the other charts and all figures. The
// directory of charts and the documents are above the page.
func (r *Run) Appendix(main string) string {
	p := &page{run: r, charts: "../charts/", above: "../"}
	p.printf(appendixIntroduction, main)
	p.places()
	p.groups()
	p.otherCharts()
	p.printf("%s", figures)
	for _, place := range r.ordered() {
		if place.Name != Native {
			p.place(place)
		}
	}
	p.benchmarks()
	return p.b.String()
}

const introduction = `# Go compared with C

` + "`make bench`" + ` writes this page. It runs programs in Go and their counterparts in C alternately on
the same machine, in an order that changes from round to round. [performance.md](performance.md)
explains the results, and how to make programs fast.

`

const appendixIntroduction = `# Go compared with C: all figures

The figures behind [the summary](%s), which says what a cost is.

`

const aboutVerdicts = `Instructions of the process on a software ConnectX, with its system calls, divided by those of
the alternative in the same round (median, and of requests also the range):

`

const costs = `A cost is the time, the instructions or the memory that Go needs, divided by what C needs in the
same round. For rates it is C's rate divided by Go's. **Below 1 Go is better.** A figure is as good
as C's if its cost is at most 1.00, rounded, within the spread of the rounds.

Absolute figures from emulated machines and software devices are not representative of adapters.
Only the comparison is meaningful. Instructions vary least from run to run. p50 is the median, and
p99 is the time that 99 of 100 messages take at most. A median does not show the slow messages: Go
can be as fast as C in p50 and many times slower in p99, as beside a busy garbage collector. Where
single times were measured, the charts show p99, too. Median costs of groups of figures:

`

const figures = `## All figures

A ratio is the median of Go's figure divided by C's, with the quartiles in brackets. Below 1 is
better for times, above 1 for rates. Ratios are **bold** where Go is worse by more than the spread.
The C programs perftest, cmtime and rstream are unmodified packages; the others are in
testbed/speed/testdata. C's perftest posts with ibv_wr_* if the provider supports it (mlx5), Go's
with PostSend. C's cmtime passes its steps to a thread and waits with sched_yield, Go's does them
itself.

`

// summary prints when Go is better than what else might be used, and the chart of costs.
func (p *page) summary() {
	p.printf("## Summary\n\n")
	p.overview()
	if all := p.run.verdicts(); len(all) > 0 {
		p.printf("%s", aboutVerdicts)
		for _, v := range all {
			p.printf("- %s\n", v)
		}
		p.printf("\n")
	}
	p.printf("%s", costs)
	p.wide(p.run.costs())
	if all := p.run.total(); len(all.costs) > 0 {
		p.printf("Of %d figures, %d are as good as C's; the median cost is %.2f.\n\n", len(all.costs), all.asGood,
			Quantile(all.costs, 0.5))
	}
}

// groups prints the table of costs.
func (p *page) groups() {
	if rows := p.run.summary(); len(rows) > 0 {
		p.printf("## Costs\n\n")
		p.rows([]string{"what", "measured", "median cost", "as good as C", "highest cost of the others"}, rows)
	}
}

// otherCharts prints the charts that are not on the main page: those of bars one below the other, and those of lines
// two in a row.
func (p *page) otherCharts() {
	_, others := p.run.chosen()
	var wide []Chart
	var rows [][]string
	for _, c := range others {
		switch {
		case len(c.Rows) > 0:
			wide = append(wide, c)
		case len(rows) == 0 || len(rows[len(rows)-1]) == 2:
			rows = append(rows, []string{p.image(c)})
		default:
			rows[len(rows)-1] = append(rows[len(rows)-1], p.image(c))
		}
	}
	if len(others) == 0 {
		return
	}
	p.printf("## Other charts\n\n")
	p.wide(wide)
	if len(rows) > 0 {
		p.rows([]string{"", ""}, rows)
	}
}

// wide prints charts one below the other.
func (p *page) wide(charts []Chart) {
	for _, c := range charts {
		p.printf("%s\n\n", p.image(c))
	}
}

func (p *page) image(c Chart) string { return fmt.Sprintf("![%s](%s%s)", c.Title, p.charts, c.File) }

// failures lists the failures.
func (p *page) failures() {
	if len(p.run.Failures) == 0 {
		return
	}
	p.printf("**Some measurements failed.** They have no figures below, or those of an earlier commit, which\n")
	p.printf("the [table of places](%s#where-it-was-measured) shows:\n\n", p.appendix)
	for _, f := range p.run.Failures {
		first, _, _ := strings.Cut(f.Why, "\n")
		p.printf("- %s: %s\n", join(nameOf(f.Part).title, f.What), first)
	}
	p.printf("\n")
}

// places prints where and when the programs ran, and their commits.
func (p *page) places() {
	var rows [][]string
	for _, place := range p.run.ordered() {
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
			[]string{nameOf(place.Name).title, place.Description, rounds, fmt.Sprintf("%s, %d CPUs", place.Machine, place.CPUs),
				join(place.Go, inC), join(place.Date, place.Commit)})
	}
	if len(rows) > 0 {
		p.printf("## Where it was measured\n\n")
		p.rows([]string{"figures", "where", "rounds", "machine", "versions", "date, commit"}, rows)
	}
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

type page struct {
	run      *Run
	charts   string // the directory of charts
	above    string // the directory of documents
	appendix string // the path of the appendix, on the main page
	b        strings.Builder
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
	p.printf("### %s\n\n", nameOf(place.Name).title)
	p.perftest(place.Name, "Latency, ratios of p50", "_lat", "typical")
	p.perftest(place.Name, "Latency, ratios of p99", "_lat", "99 %")
	p.perftest(place.Name, "Latency, ratios of the shortest time, which other load affects least", "_lat", "least")
	p.perftest(place.Name, "Rate, ratios of messages per second", "_bw", "rate")
	p.perftest(place.Name, "Rate, ratios of the peak", "_bw", "peak")
	p.variants(place.Name)
	p.grown(place.Name)
	p.requests(place.Name)
	p.otherRequests(place.Name)
	p.steps(place.Name, "objects", "Creating and destroying objects, each", "number")
	p.steps(place.Name, "cmtime", "Connecting, each", "connections")
	p.memory(place.Name)
	p.rstream(place.Name)
	p.messages(place.Name)
	p.beside(place.Name, besideCgo)
	p.beside(place.Name, besideFabric)
	p.churned(place.Name)
}

// repeating prints the commands that repeat the measurements.
func (p *page) repeating() {
	p.printf("## How to repeat it\n\n")
	p.rows([]string{"what", "command"}, [][]string{
		{"everything", "`make bench`: on two CPUs, from nothing, about 35 minutes for rxe, mlx5, cost and native," +
			" and 20 for messages; rsocket comes on top"},
		{"one part anew, with the other figures of the file", "`go run -C testbed ./bench -only messages`," +
			" `go run ./bench/report bench/figures/go-and-c.json docs/go-and-c.md`"},
		{"one place, few rounds",
			"`go run -C testbed ./bench -only mlx5 -rounds 2 -o /tmp/x.json`, `go run ./bench/report /tmp/x.json /tmp/x.md`"},
		{"two real hosts", "`make bench SERVER=root@a CLIENT=root@b ADDRESS=10.0.0.1 DEVICE=mlx5_0`"},
	})
}
