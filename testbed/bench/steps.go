package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/bench/results"
)

// inTurn runs programs round by round, in an order that changes.
func (b *bench) inTurn(what string, who []string, run func(who string) error) error {
	if b.options.tests != "" {
		return nil
	}
	for round := range b.run.Rounds {
		order := slices.Clone(who)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, w := range order {
			began := time.Now()
			if err := run(w); err != nil {
				return fmt.Errorf("%s, round %d, %s: %w", what, round+1, w, err)
			}
			if b.options.verbose {
				b.logf("%s, %s: %.1f s", what, w, time.Since(began).Seconds())
			}
		}
	}
	b.logf("%s: %d rounds", what, b.run.Rounds)
	return nil
}

// named reads lines of a name and a number.
func named(out string) (names []string, values map[string]float64, err error) {
	values = map[string]float64{}
	for line := range strings.Lines(out) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			return nil, nil, fmt.Errorf("no figure in %q", line)
		}
		names = append(names, name)
		values[name] = v
	}
	return names, values, nil
}

// objects compares how fast objects are made and destroyed, as many as counts
// say.
func (b *bench) objects(ctx context.Context, m *machine, place string, counts ...int) error {
	ours, err := m.program(ctx, "bench/objects")
	if err != nil {
		return err
	}
	inC, _, err := m.client.compile(ctx, source("objects.c"))
	if err != nil {
		return err
	}
	programs := map[string]string{results.Go: ours[1], results.C: inC}
	return b.inTurn("objects on "+place, []string{results.Go, results.C}, func(who string) error {
		for _, count := range counts {
			out, err := m.client.run(ctx, programs[who], "-d", m.device, "-n", strconv.Itoa(count))
			if err != nil {
				return err
			}
			names, values, err := named(out)
			if err != nil {
				return err
			}
			for _, name := range names {
				b.run.Add(results.Series{Place: place, Test: "objects", Figure: name, At: count, Unit: "us"}, who, values[name])
			}
		}
		return nil
	})
}

// A step of cmtime's report: its name, the average, and the total in us.
var step = regexp.MustCompile(`(?m)^([a-z ]+?) +\d+ +(\d+)`)

// cmtime compares the steps of connecting.
func (b *bench) cmtime(ctx context.Context, m *machine, place string) error {
	ours, err := m.program(ctx, "bench/cmtime")
	if err != nil {
		return err
	}
	const count = 500
	return b.inTurn("cmtime on "+place, []string{results.Go, results.C}, func(who string) error {
		server, client := ours[0], ours[1]
		if who == results.C {
			server, client = "cmtime", "cmtime"
		}
		m.port++
		args := fmt.Sprintf(" -p %d -c %d", m.port, count)
		// C's exits with its last status, whatever that is, and goes on to other
		// tests, for which its server stays.
		out, err := m.pair(ctx, []string{"sh", "-c", server + " -b " + m.address + args + " || true"},
			[]string{"sh", "-c", "until rdma resource show cm_id | grep -q LISTEN; do sleep 0.02; done"},
			[]string{"sh", "-c", client + " -s " + m.address + args + " || true"})
		if err != nil {
			return err
		}
		_, report, found := strings.Cut(out, "qp_conn")
		if !found {
			return fmt.Errorf("no report in\n%s", out)
		}
		report, _, _ = strings.Cut(report, "without QPs")
		for _, f := range step.FindAllStringSubmatch(report, -1) {
			us, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return err
			}
			if us == 0 {
				continue // C counts it with another step, or not on this side
			}
			b.run.Add(results.Series{Place: place, Test: "cmtime", Figure: f[1], At: count, Unit: "us"}, who, us/count)
		}
		return nil
	})
}
