package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/results"
)

// Figures that nobody can repeat do not get into the file that the tree shows.
func TestPublished(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		rounds            int
		commit, out, want string
	}{
		{10, "abc", published, ""},
		{10, "abc-dirty", published, "the tree has changes"},
		{1, "abc", "./" + published, "at least 5 rounds"},
		{1, "abc-dirty", "bin/x.json", ""},
		{0, "abc", "bin/x.json", "-rounds: 0 is too few"},
	} {
		b := &bench{rounds: c.rounds, here: results.Place{Commit: c.commit}, messages: 1000, options: options{out: c.out}}
		if err := b.check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Options that cannot be are told before anything runs, with what can.
func TestOptions(t *testing.T) {
	dir := t.TempDir()
	good, broken := filepath.Join(dir, "new", "x.json"), filepath.Join(dir, "broken.json")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    options
		n    int
		want string
	}{
		{options{}, 1000, ""},
		{options{}, 99, "-n: 99 is none of 100 to"},
		{options{}, 2e6, "-n: 2000000 is none of 100 to"},
		{options{server: "a"}, 1000, "two hosts want all of"},
		{options{address: "10.0.0.1"}, 1000, "two hosts want all of"},
		{options{args: "-x 3"}, 1000, "without them -args and -server-args have no meaning"}, {options{serverArgs: "-x 3"}, 1000, "two hosts want all of"},
		{options{server: "a", client: "b", address: "c", args: "-R"}, 1000, "-args: a server is waited for over TCP"},
		{options{out: broken}, 1000, "-o: " + broken},
		{options{out: filepath.Join(broken, "x.json")}, 1000, "-o: "},
		{options{only: "rxe,"}, 1000, `-only: there is no part "": there are rxe, mlx5, cost, native`},
		{options{server: "a", client: "b", address: "c", only: "rxe"}, 1000, "there are hosts, native"},
		{options{tests: "("}, 1000, "-tests: "},
		{options{tests: "send_bw/7"}, 1000, "mlx5 has send_lat/2|64|4096|65536, write_lat/2"},
		{options{tests: "x", only: results.Native}, 1000, "native has none"},
	} {
		if c.o.out == "" {
			c.o.out = good
		}
		b := &bench{rounds: 1, messages: c.n, options: c.o}
		err := b.check()
		if err == nil {
			_, err = b.parts()
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}

// Of tests that are asked for, parts that have none are left out.
func TestParts(t *testing.T) {
	for o, want := range map[options]string{
		{}:                                "rxe mlx5 cost native",
		{tests: "read_lat -e"}:            "cost",
		{tests: "write_lat/64"}:           "rxe mlx5",
		{tests: "_lat/64", only: "mlx5"}:  "mlx5",
		{only: "native,rxe"}:              "rxe native",
		{server: "a", tests: "write_bw/"}: "hosts",
	} {
		parts, err := (&bench{messages: 1000, options: o}).parts()
		var names []string
		for _, p := range parts {
			names = append(names, p.name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%+v: %s, %v, want %s", o, got, err, want)
		}
	}
}
