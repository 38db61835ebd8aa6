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

// check refuses what cannot be done before anything is measured.
func (b *bench) check() error {
	o := b.options
	switch {
	case o.server == "" && (o.client != "" || o.address != "" || o.args != "" || o.serverArgs != "") || o.server != "" && (o.client == "" || o.address == ""):
		return errors.New("two hosts want all of -server, -client and -address; without them -args and -server-args have no meaning")
	case flag.NArg() > 0:
		return fmt.Errorf("%q is no option: options begin with a dash, and those behind an argument are not seen", flag.Arg(0))
	case b.rounds < 1:
		return fmt.Errorf("-rounds: %d is too few: give 1 or more", b.rounds)
	case b.messages < leastMessages || b.messages > mostMessages:
		return fmt.Errorf("-n: %d is none of %d to %d", b.messages, leastMessages, mostMessages)
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
	switch {
	case filepath.Clean(o.out) != published:
		return nil
	case o.tests != "":
		return fmt.Errorf("%s is for the figures of whole parts: write those of -tests elsewhere (-o bin/x.json)", published)
	case b.rounds < leastRounds:
		return fmt.Errorf("%s is for figures of at least %d rounds: write those of %d elsewhere (-o bin/x.json)", published, leastRounds, b.rounds)
	case strings.HasSuffix(b.here.Commit, dirty):
		return fmt.Errorf("%s is for figures of a commit, and the tree has changes that are in none: commit them, or write the figures elsewhere (-o bin/x.json)", published)
	}
	return nil
}

// A run of fewer messages has no 99th percentile; one of more takes hours.
const (
	leastMessages = 100
	mostMessages  = 1_000_000
)

// checkOut finds out what would keep the figures from being written, in the end.
func (b *bench) checkOut() error {
	out := b.options.out
	if _, err := results.Read(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: its figures of what is not measured now would be lost", err)
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

// parts are those that are asked for.
func (b *bench) parts() ([]part, error) {
	n := b.messages
	all := []part{{"rxe", "rxe", b.onRXE, rxeGames(n)}, {"mlx5", "mlx5", b.onConnectX, connectXGames(n)}, {"cost", "instructions", b.cost, costGames(n)},
		{results.Native, results.Native, b.native, nil}}
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
				return nil, fmt.Errorf("-only: there is no part %q: there are %s", name, strings.Join(names, ", "))
			}
		}
		all = slices.DeleteFunc(all, func(p part) bool { return !slices.Contains(only, p.name) })
	}
	return b.withTests(all)
}

// withTests leaves out the parts that have none of the tests that are asked for.
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

// wants tells whether a game is asked for.
func (b *bench) wants(g game) bool { return b.tests.MatchString(fmt.Sprintf("%s/%d", g.test, g.at)) }

// list names games: those of a test behind each other.
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
