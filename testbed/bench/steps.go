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
func (b *bench) inTurn(place, test string, run func(who string) ([]value, error)) error {
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
			key := results.Series{Place: place, Test: test, Figure: ours.figure, At: ours.at, Unit: "us"}
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
	return b.inTurn(place, "objects", func(who string) (figures []value, err error) {
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
	if b.options.tests != "" {
		return nil
	}
	ours, err := m.program(ctx, "bench/waits")
	if err != nil {
		return err
	}
	inC, _, err := m.client.compile(ctx, source("waits.c"))
	if err != nil {
		return err
	}
	programs := map[string]string{results.Go: ours[1], results.C: inC}
	return b.inTurn(place, results.IdleQueues, func(who string) (figures []value, err error) {
		for _, n := range idle {
			out, err := m.client.run(ctx, unlimited(programs[who], "-d", m.device, "-idle", strconv.Itoa(n))...)
			if err != nil {
				return nil, err
			}
			_, values, err := named(out)
			if err != nil {
				return nil, err
			}
			figures = append(figures, value{"wait", n, values["wait"]})
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
	ours, err := m.program(ctx, "bench/cmtime")
	if err != nil {
		return err
	}
	const count = 500
	return b.inTurn(place, "cmtime", func(who string) (figures []value, err error) {
		server, client := ours[0], ours[1]
		if who == results.C {
			server, client = "cmtime", "cmtime"
		}
		args := fmt.Sprintf(" -p %d -c %d", m.next(), count)
		if who == results.C { // it exits with its last status, whatever that is
			args += " || true"
		}
		out, err := m.pair(ctx, []string{"sh", "-c", server + " -b " + m.address + args},
			[]string{"sh", "-c", fmt.Sprintf(cmListening, m.port)},
			[]string{"sh", "-c", client + " -s " + m.address + args})
		if err != nil {
			return nil, err
		}
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
				figures = append(figures, value{f[1], count, us / count})
			}
		}
		return figures, nil
	})
}
