package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/bench/results"
)

// A value is a program's figure in a round.
type value struct {
	figure string
	at     int
	v      float64
}

// inTurn runs the Go and the C program round by round, in an order that changes. A figure
// that only one of them has in a round is left out, because figures of the same round
// are compared.
func (b *bench) inTurn(place, test, unit string, run func(who string) ([]value, error)) error {
	for round := range b.rounds {
		who := []string{results.Go, results.C}
		if round%2 == 1 {
			slices.Reverse(who)
		}
		found := map[string][]value{}
		for _, w := range who {
			began := time.Now()
			var err error
			if found[w], err = run(w); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, w, err)
			}
			if b.options.verbose {
				b.logf("%s on %s, %s: %.1f s", test, place, w, time.Since(began).Seconds())
			}
		}
		for _, ours := range found[results.Go] {
			i := slices.IndexFunc(found[results.C], func(c value) bool { return c.figure == ours.figure && c.at == ours.at })
			if i < 0 {
				continue
			}
			key := results.Series{Place: place, Test: test, Figure: ours.figure, At: ours.at, Unit: unit}
			b.run.Add(key, results.Go, ours.v)
			b.run.Add(key, results.C, found[results.C][i].v)
		}
	}
	b.logf("%s on %s: %d rounds", test, place, b.rounds)
	return nil
}

// number parses a figure. It rejects inf and nan, which perftest prints after a division
// by zero.
func number(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && (v < 0 || math.IsInf(v, 0) || math.IsNaN(v)) {
		err = strconv.ErrRange
	}
	return v, err
}

// named parses lines with a name and a number.
func named(out string) (names []string, values map[string]float64, err error) {
	values = map[string]float64{}
	for line := range strings.Lines(out) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		v, err := number(value)
		if !found || err != nil {
			return nil, nil, fmt.Errorf("no number in %q: %v", line, err)
		}
		names = append(names, name)
		values[name] = v
	}
	return names, values, nil
}

// objects compares the creation and destruction of objects, for each number in counts.
func (b *bench) objects(ctx context.Context, m *machine, place string, counts ...int) error {
	if b.options.tests != "" {
		return nil
	}
	ours, err := m.program(ctx, "bench/objects")
	if err != nil {
		return err
	}
	inC, _, err := m.client.compile(ctx, source("objects.c"))
	if err != nil {
		return err
	}
	programs := map[string]string{results.Go: ours[1], results.C: inC}
	return b.inTurn(place, "objects", "us", func(who string) (figures []value, err error) {
		for _, count := range counts {
			out, err := m.client.run(ctx, programs[who], "-d", m.device, "-n", strconv.Itoa(count))
			if err != nil {
				return nil, err
			}
			names, values, err := named(out)
			if err != nil {
				return nil, err
			}
			for _, n := range names {
				figures = append(figures, value{n, count, values[n]})
			}
		}
		return figures, nil
	})
}

// waits compares a wait for a completion beside idle queues, for each number in idle.
func (b *bench) waits(ctx context.Context, m *machine, place string, idle ...int) error {
	return b.sweep(ctx, m, place, sweep{results.IdleQueues, "waits", "-idle", "wait", "us"}, idle)
}

// parallel compares a post while others post, for each number of QPs in counts.
func (b *bench) parallel(ctx context.Context, m *machine, place string, counts ...int) error {
	return b.sweep(ctx, m, place, sweep{results.ParallelPosts, "parallel", "-qps", "post", "ns"}, counts)
}

// A sweep is a test with an increasing number, which its programs take by an option. They
// print a figure.
type sweep struct{ test, program, option, figure, unit string }

// sweep compares the programs of a test for each number in counts.
func (b *bench) sweep(ctx context.Context, m *machine, place string, t sweep, counts []int) error {
	if b.options.tests != "" {
		return nil
	}
	ours, err := m.program(ctx, "bench/"+t.program)
	if err != nil {
		return err
	}
	inC, _, err := m.client.compile(ctx, source(t.program+".c"))
	if err != nil {
		return err
	}
	programs := map[string]string{results.Go: ours[1], results.C: inC}
	return b.inTurn(place, t.test, t.unit, func(who string) (figures []value, err error) {
		for _, n := range counts {
			out, err := m.client.run(ctx, unlimited(programs[who], "-d", m.device, t.option, strconv.Itoa(n))...)
			if err != nil {
				return nil, err
			}
			_, values, err := named(out)
			if err != nil {
				return nil, err
			}
			figures = append(figures, value{t.figure, n, values[t.figure]})
		}
		return figures, nil
	})
}

// A step of cmtime's report: its name, the average, and the total in us.
var step = regexp.MustCompile(`(?m)^([a-z ]+?) +\d+ +(\d+)`)

// cmListening waits until rdma_cm listens on a port.
const cmListening = `command -v rdma >/dev/null || { echo "there is no rdma: install iproute2" >&2; exit 1; }
until rdma resource show cm_id | grep -q 'LISTEN.*:%d\( \|$\)'; do sleep 0.02; done`

// cmtime compares the steps of connecting.
func (b *bench) cmtime(ctx context.Context, m *machine, place string) error {
	if b.options.tests != "" {
		return nil
	}
	const count = 500
	return b.inTurn(place, "cmtime", "us", func(who string) ([]value, error) {
		out, err := b.connect(ctx, m, who, count, "", "")
		if err != nil {
			return nil, err
		}
		return stepsOf(out, count)
	})
}

// connections compares the steps and the memory of many connections in a process. They
// take long, so there are few rounds.
func (b *bench) connections(ctx context.Context, m *machine, place string) error {
	if b.options.tests != "" {
		return nil
	}
	rounds := b.rounds
	b.rounds = min(rounds, 3)
	defer func() { b.rounds = rounds }()
	memory := results.Series{Place: place, Test: results.Memory, Figure: "connection.rss", At: manyObjects, Unit: "bytes"}
	return b.inTurn(place, "cmtime", "us", func(who string) ([]value, error) {
		one, _, err := b.connectMany(ctx, m, who, 1)
		if err != nil {
			return nil, err
		}
		all, steps, err := b.connectMany(ctx, m, who, manyObjects)
		if err != nil {
			return nil, err
		}
		b.run.Add(memory, who, (all-one)/(manyObjects-1))
		return steps, nil
	})
}

// A line of bench/peak's output: the largest amount of memory that was resident.
var peak = regexp.MustCompile(`(?m)^peak (\d+)$`)

// connectMany returns the largest amount of memory of a client that makes count
// connections, in bytes, and the average time of each step.
func (b *bench) connectMany(ctx context.Context, m *machine, who string, count int) (
	memory float64, steps []value, err error) {
	measure, err := m.program(ctx, "bench/peak")
	if err != nil {
		return 0, nil, err
	}
	out, err := b.connect(ctx, m, who, count, "ulimit -l unlimited && ulimit -n 65536 && ", measure[1]+" ")
	if err != nil {
		return 0, nil, err
	}
	found := peak.FindStringSubmatch(out)
	if found == nil {
		return 0, nil, fmt.Errorf("no peak in\n%s", out)
	}
	if memory, err = strconv.ParseFloat(found[1], 64); err != nil {
		return 0, nil, err
	}
	steps, err = stepsOf(out, count)
	return memory, steps, err
}

// connect returns the output of cmtime's client, which makes count connections. limits is
// a shell command before both programs, under a program that runs the client.
func (b *bench) connect(ctx context.Context, m *machine, who string, count int, limits, under string) (string, error) {
	programs, err := m.program(ctx, "bench/cmtime")
	if err != nil {
		return "", err
	}
	args := fmt.Sprintf(" -p %d -c %d", m.next(), count)
	if who == results.C {
		programs = [2]string{"cmtime", "cmtime"}
		args += " || true" // it exits with its last status, whatever that is
	}
	return m.pair(ctx, []string{"sh", "-c", limits + programs[0] + " -b " + m.address + args},
		[]string{"sh", "-c", fmt.Sprintf(cmListening, m.port)},
		[]string{"sh", "-c", limits + under + programs[1] + " -s " + m.address + args})
}

// stepsOf parses the report of cmtime.
func stepsOf(out string, count int) (figures []value, err error) {
	_, report, found := strings.Cut(out, "qp_conn")
	if !found {
		return nil, fmt.Errorf("no report in\n%s", out)
	}
	report, _, _ = strings.Cut(report, "without QPs")
	for _, f := range step.FindAllStringSubmatch(report, -1) {
		us, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			return nil, err
		}
		if us != 0 { // C counts it with another step, or not on this side
			figures = append(figures, value{f[1], count, us / float64(count)})
		}
	}
	return figures, nil
}
