package main

import (
	"cmp"
	"context"
	"errors"
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
	bandwidths = []figure{{"rate", 4, "M messages/s", true}}
	peaks      = []figure{{"peak", 2, "MiB/s", true}}
)

// noPeak prevents both programs from reading the clock for each message to find a peak,
// which has a different cost in each.
const noPeak = " -N"

// leastPeak is the smallest size for which two digits of MiB/s are precise enough.
const leastPeak = 4096

// spreadAt is the size for which the distribution of single times is kept.
const spreadAt = 64

// A game is a test that both programs run.
type game struct {
	test string
	at   int // At of the series: the size, or the number of queue pairs
	size int
	args string
}

// A sample identifies the single times of a program.
type sample struct{ test, who string }

// games returns the games of all sizes. Peaks, of the largest sizes, have separate runs.
func games(tests []string, sizes []int, messages int) (all []game) {
	for _, test := range tests {
		for i, size := range sizes {
			args := fmt.Sprintf("-s %d -n %d", size, forLatency(size, messages))
			switch {
			case strings.HasSuffix(test, "_bw"):
				args = fmt.Sprintf("-s %d -n %d", size, forRate(size, messages))
				all = append(all, game{test, size, size, args + noPeak})
				if size < leastPeak || i < len(sizes)-2 {
					continue
				}
			case size == spreadAt:
				args += " -H"
			}
			all = append(all, game{test, size, size, args})
		}
	}
	return all
}

// forLatency returns the number of messages for a latency and its tail. A run of a
// thousand small messages ends before the kernel moves its workers and the programs to
// other CPUs than those on which they started.
func forLatency(size, messages int) int {
	if size > 4096 {
		return messages
	}
	return 5 * messages
}

// forRate returns the number of messages for a rate, for the same reason.
func forRate(size, messages int) int {
	if size > 4096 {
		return 2 * messages
	}
	return 10 * messages
}

// many returns the games of increasing numbers of queue pairs.
func many(qps []int, messages int) (all []game) {
	for _, n := range qps {
		each := max(forRate(64, messages)/n, 100)
		all = append(all, game{results.ManyQPs, n, 64, fmt.Sprintf("-s 64 -q %d -n %d", n, each) + noPeak})
	}
	return all
}

// variants returns the games with options.
func variants(messages int, tests ...string) (all []game) {
	messages -= messages % 32 // for lists
	for _, test := range tests {
		name, options, _ := strings.Cut(test, " ")
		n := messages
		if strings.HasSuffix(name, "_bw") {
			options += noPeak
			if !strings.HasPrefix(options, "-e") { // which takes long where instructions are counted
				n = forRate(64, messages)
			}
		}
		all = append(all, game{test, 64, 64, fmt.Sprintf("-s 64 -n %d %s", n, options)})
	}
	return all
}

// play runs all games with both programs alternately. A game that fails twice is left
// out from then on. If several fail one after the other, play gives up the place.
func (b *bench) play(ctx context.Context, m *machine, place string, all []game) {
	all = slices.DeleteFunc(all, func(g game) bool { return !b.wants(g) })
	ours, err := m.program(ctx, "bench/goverbs-perftest")
	if err != nil {
		b.fail(place, "perftest", err)
		return
	}
	var times samples
	failed, inARow := map[game]int{}, 0
	for round := range b.rounds {
		for _, g := range all {
			if failed[g] > 1 {
				continue
			}
			err := b.round(ctx, m, place, ours, g, round, &times)
			if inARow++; err == nil {
				inARow = 0
				continue
			}
			failed[g]++
			b.fail(place, fmt.Sprintf("%s, %d, round %d", g.test, g.at, round+1), err)
			switch {
			case ctx.Err() != nil:
				b.fail(place, "perftest", errors.New("interrupted"))
				return
			case inARow == 3:
				b.fail(place, "perftest", errors.New("given up: nothing works any more"))
				return
			}
		}
		b.logf("%s: round %d of %d", place, round+1, b.rounds)
	}
	for _, k := range times.order {
		b.run.Distributions = append(b.run.Distributions, results.Distribution{
			Place: place, Test: k.test, Who: k.who, At: spreadAt, Unit: "us", Quantiles: results.Quantiles(times.of[k], 1001)})
	}
}

// samples holds the single times of all rounds.
type samples struct {
	of    map[sample][]float64
	order []sample
}

func (s *samples) add(k sample, times []float64) {
	if s.of == nil {
		s.of = map[sample][]float64{}
	}
	if s.of[k] == nil {
		s.order = append(s.order, k)
	}
	s.of[k] = append(s.of[k], times...)
}

// round runs a game once with both programs. It adds the figures of both or of neither.
func (b *bench) round(ctx context.Context, m *machine, place string, ours [2]string, g game, round int,
	times *samples) error {
	who := []string{results.Go, results.C}
	if round%2 == 1 {
		slices.Reverse(who)
	}
	said, found := map[string]string{}, map[string][]float64{}
	for _, w := range who {
		began := time.Now()
		out, err := m.perftest(ctx, w, ours, g)
		if b.options.verbose {
			b.logf("%s %s %s: %.1f s", w, g.test, g.args, time.Since(began).Seconds())
		}
		if err == nil {
			found[w], err = columns(g, out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
		said[w] = out
	}
	for _, w := range who {
		for i, c := range figuresOf(g) {
			b.run.Add(results.Series{Place: place, Test: g.test, Figure: c.name, At: g.at, Unit: c.unit, More: c.more}, w,
				found[w][i])
		}
		if strings.Contains(g.args, "-H") {
			times.add(sample{g.test, w}, singles(said[w]))
		}
	}
	return nil
}

// tcpListening waits until TCP listens on a port.
const tcpListening = "until cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |" +
	" grep -qi '^ *[0-9]*: [0-9A-F]*:%04x .* 0A '; do sleep 0.02; done"

// perftest runs a game with one of the programs.
func (m *machine) perftest(ctx context.Context, who string, ours [2]string, g game) (string, error) {
	test, _, _ := strings.Cut(g.test, " ")
	port := m.next()
	command := func(end int, device, args string) []string {
		c := []string{"ib_" + test}
		if who == results.Go {
			c = []string{ours[end], test}
		}
		return append(append(c, strings.Fields(args+" "+g.args)...), "-F", "-d", device, "-p", strconv.Itoa(port))
	}
	listening := fmt.Sprintf(tcpListening, port)
	return m.pair(ctx, command(0, cmp.Or(m.serverDevice, m.device), cmp.Or(m.serverArgs, m.args)),
		[]string{"sh", "-c", listening}, append(command(1, m.device, m.args), m.address))
}

func figuresOf(g game) []figure {
	switch {
	case !strings.Contains(g.test, "_bw"):
		return latencies
	case strings.HasSuffix(g.args, noPeak):
		return bandwidths
	}
	return peaks
}

// columns parses the figures of a report, in the line that starts with the message size.
func columns(g game, out string) (values []float64, err error) {
	figures, least := figuresOf(g), 9
	if strings.Contains(g.test, "_bw") {
		least = 5
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < least || f[0] != strconv.Itoa(g.size) {
			continue
		}
		for _, c := range figures {
			v, err := number(f[c.column])
			if err != nil || v == 0 {
				return nil, fmt.Errorf("%s of %s is not a number: %v in %q", c.name, g.test, err, line)
			}
			values = append(values, v)
		}
		return values, nil
	}
	return nil, fmt.Errorf("%s %s has no line of %d bytes:\n%s", g.test, g.args, g.size, out)
}

// singles returns the times of a histogram.
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
