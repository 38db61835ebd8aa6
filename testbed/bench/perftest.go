package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/bench/results"
)

// A figure is a column of perftest's reports.
type figure struct {
	name   string
	column int
	unit   string
	more   bool
}

var (
	latencies  = []figure{{"typical", 4, "us", false}, {"least", 2, "us", false}, {"99 %", 7, "us", false}}
	bandwidths = []figure{{"rate", 4, "M messages/s", true}, {"peak", 2, "MiB/s", true}}
)

// spreadAt is the size whose single times are kept.
const spreadAt = 64

// A game is a test that both programs play.
type game struct {
	test string
	at   int // what the series is called by: the size, or the queue pairs
	size int
	args string
}

// A sample is all single times of a program.
type sample struct{ test, who string }

// games are those of sizes.
func games(tests []string, sizes []int, messages int) (all []game) {
	for _, test := range tests {
		for _, size := range sizes {
			args := fmt.Sprintf("-s %d -n %d", size, messages)
			if size == spreadAt && strings.HasSuffix(test, "_lat") {
				args += " -H"
			}
			all = append(all, game{test, size, size, args})
		}
	}
	return all
}

// many are those of numbers of queue pairs.
func many(qps []int, messages int) (all []game) {
	for _, n := range qps {
		each := max(messages/n, 100)
		all = append(all, game{"write_bw by queue pairs", n, 64, fmt.Sprintf("-s 64 -q %d -n %d", n, each)})
	}
	return all
}

// variants are those of options.
func variants(messages int, tests ...string) (all []game) {
	messages -= messages % 32 // for lists
	for _, test := range tests {
		_, options, _ := strings.Cut(test, " ")
		all = append(all, game{test, 64, 64, fmt.Sprintf("-s 64 -n %d %s", messages, options)})
	}
	return all
}

// play has both programs play all games in turn.
func (b *bench) play(ctx context.Context, m *machine, place string, all []game) error {
	all = slices.DeleteFunc(all, func(g game) bool { return !b.tests.MatchString(fmt.Sprintf("%s/%d", g.test, g.at)) })
	ours, err := m.program(ctx, "bench/goverbs-perftest")
	if err != nil {
		return err
	}
	times := map[sample][]float64{}
	var order []sample
	for round := range b.run.Rounds {
		for _, g := range all {
			who := []string{results.Go, results.C}
			if round%2 == 1 {
				slices.Reverse(who)
			}
			for _, w := range who {
				began := time.Now()
				out, err := m.perftest(ctx, w, ours, g)
				if b.options.verbose {
					b.logf("%s %s %s: %.1f s", w, g.test, g.args, time.Since(began).Seconds())
				}
				if err != nil {
					return fmt.Errorf("round %d, %s: %w", round+1, w, err)
				}
				if err := b.note(place, w, g, out); err != nil {
					return err
				}
				if strings.Contains(g.args, "-H") {
					k := sample{g.test, w}
					if times[k] == nil {
						order = append(order, k)
					}
					times[k] = append(times[k], singles(out)...)
				}
			}
		}
		b.logf("%s: round %d of %d", place, round+1, b.run.Rounds)
	}
	for _, k := range order {
		b.run.Distributions = append(b.run.Distributions, results.Distribution{
			Place: place, Test: k.test, Who: k.who, At: spreadAt, Unit: "us", Quantiles: results.Quantiles(times[k], 1001)})
	}
	return nil
}

// perftest plays a game by one of the programs.
func (m *machine) perftest(ctx context.Context, who string, ours [2]string, g game) (string, error) {
	test, _, _ := strings.Cut(g.test, " ")
	m.port++
	command := func(end int) []string {
		c := []string{"ib_" + test}
		if who == results.Go {
			c = []string{ours[end], test}
		}
		return append(append(c, strings.Fields(m.args+" "+g.args)...), "-F", "-d", m.device, "-p", strconv.Itoa(m.port))
	}
	listening := fmt.Sprintf("until grep -qi '^ *[0-9]*: [0-9A-F]*:%04x .* 0A ' /proc/net/tcp; do sleep 0.02; done", m.port)
	return m.pair(ctx, command(0), []string{"sh", "-c", listening}, append(command(1), m.address))
}

// note takes the columns out of a report: of the line that begins with the
// message's size.
func (b *bench) note(place, who string, g game, out string) error {
	figures, least := latencies, 9
	if strings.Contains(g.test, "_bw") {
		figures, least = bandwidths, 5
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < least || f[0] != strconv.Itoa(g.size) {
			continue
		}
		for _, c := range figures {
			v, err := strconv.ParseFloat(f[c.column], 64)
			if err != nil {
				return fmt.Errorf("%s of %s: %w in %q", c.name, g.test, err, line)
			}
			b.run.Add(results.Series{Place: place, Test: g.test, Figure: c.name, At: g.at, Unit: c.unit, More: c.more}, who, v)
		}
		return nil
	}
	return fmt.Errorf("%s %s has no line of %d bytes:\n%s", g.test, g.args, g.size, out)
}

// singles are the times of a histogram.
func singles(out string) (all []float64) {
	for line := range strings.Lines(out) {
		number, value, found := strings.Cut(strings.TrimSpace(line), ", ")
		if _, err := strconv.Atoi(number); !found || err != nil {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all = append(all, v)
		}
	}
	return all
}
