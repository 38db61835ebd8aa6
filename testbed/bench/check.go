package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/bench/results"
)

// check checks the options before anything is measured.
func (b *bench) check() error {
	o := b.options
	switch {
	case o.server == "" && (o.client != "" || o.address != "" || o.args != "" || o.serverArgs != ""),
		o.server != "" && (o.client == "" || o.address == ""):
		return errors.New("two hosts need all of -server, -client and -address;" +
			" -args and -server-args are only for two hosts")
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: options start with a dash and must precede arguments", flag.Arg(0))
	case b.rounds < 1:
		return fmt.Errorf("-rounds: %d is too few: use 1 or more", b.rounds)
	case b.messages < leastMessages || b.messages > mostMessages:
		return fmt.Errorf("-n: %d is not from %d to %d", b.messages, leastMessages, mostMessages)
	}
	if o.server != "" {
		m := b.hosts()
		if err := checkArgs(m.args, b.messages); err != nil {
			return fmt.Errorf("-args: %w", err)
		}
		if err := checkArgs(m.serverArgs, b.messages); err != nil {
			return fmt.Errorf("-server-args: %w", err)
		}
	}
	if err := b.checkOut(); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	return b.checkPublished()
}

// checkPublished checks that figures for the published file are reproducible.
func (b *bench) checkPublished() error {
	o := b.options
	out, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	file, err := filepath.Abs(published)
	if err != nil {
		return err
	}
	switch {
	case out != file:
		return nil
	case o.tests != "":
		return fmt.Errorf("%s is for figures of whole parts: write those of -tests to another file (-o /tmp/x.json)",
			published)
	case b.rounds < leastRounds:
		return fmt.Errorf("%s is for figures of at least %d rounds: write those of %d to another file (-o /tmp/x.json)",
			published, leastRounds, b.rounds)
	case strings.HasSuffix(b.here.Commit, dirty):
		return fmt.Errorf("%s is for figures of a commit, but the tree has uncommitted changes: commit them,"+
			" or write the figures to another file (-o /tmp/x.json)", published)
	}
	return nil
}

// Fewer messages have no 99th percentile; more take hours.
const (
	leastMessages = 100
	mostMessages  = 1_000_000
)

// checkOut returns the error that would later prevent the figures from being written.
func (b *bench) checkOut() error {
	out := b.options.out
	if _, err := results.Read(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: its other figures would be lost", err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".bench-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// parts returns the selected parts.
func (b *bench) parts() ([]part, error) {
	n := b.messages
	all := []part{
		{"rxe", "rxe", b.onRXE, rxeGames(n)},
		{"mlx5", "mlx5", b.onConnectX, connectXGames(n)},
		{"cost", "instructions", b.cost, costGames(n)},
		{"rsocket", results.Rsocket, b.onRsocket, nil},
		{"rsocket-two", results.RsocketTwo, b.rsocketTwo, nil},
		{"rsocket-cost", results.RsocketInstructions, b.rsocketCost, nil},
		{results.Messages, results.Messages, b.onMessages, nil},
		{"messages-cost", results.MessageInstructions, b.messageCost, nil},
		{results.Native, results.Native, b.native, nil},
	}
	if b.options.server != "" {
		all = []part{{"hosts", "hosts", b.onHosts, hostGames(n)}, {results.Native, results.Native, b.native, nil}}
	}
	if b.options.only != "" {
		names := make([]string, len(all))
		for i, p := range all {
			names[i] = p.name
		}
		only := strings.Split(b.options.only, ",")
		for _, name := range only {
			if !slices.Contains(names, name) {
				return nil, fmt.Errorf("-only: unknown part %q: the parts are %s", name, strings.Join(names, ", "))
			}
		}
		all = slices.DeleteFunc(all, func(p part) bool { return !slices.Contains(only, p.name) })
	}
	return b.withTests(all)
}

// withTests returns the parts that have any of the selected tests.
func (b *bench) withTests(all []part) ([]part, error) {
	var err error
	if b.tests, err = regexp.Compile(b.options.tests); err != nil {
		return nil, fmt.Errorf("-tests: %w", err)
	}
	if b.options.tests == "" {
		return all, nil
	}
	wanted := slices.DeleteFunc(slices.Clone(all), func(p part) bool { return !slices.ContainsFunc(p.games, b.wants) })
	if len(wanted) > 0 {
		return wanted, nil
	}
	var names []string
	for _, p := range all {
		names = append(names, p.name+" has "+list(p.games))
	}
	return nil, fmt.Errorf("-tests: no test matches %q:\n%s", b.options.tests, strings.Join(names, "\n"))
}

// wants reports whether a game is selected.
func (b *bench) wants(g game) bool { return b.tests.MatchString(fmt.Sprintf("%s/%d", g.test, g.at)) }

// list formats games, with those of a test on one line.
func list(games []game) string {
	if len(games) == 0 {
		return "none"
	}
	var tests []string
	at := map[string][]string{}
	for _, g := range games {
		if at[g.test] == nil {
			tests = append(tests, g.test)
		}
		if v := strconv.Itoa(g.at); !slices.Contains(at[g.test], v) {
			at[g.test] = append(at[g.test], v)
		}
	}
	for i, name := range tests {
		tests[i] = name + "/" + strings.Join(at[name], "|")
	}
	return strings.Join(tests, ", ")
}
