package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/results"
)

// Figures that are not reproducible are not written to the published file.
func TestPublished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "testbed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, c := range []struct {
		rounds            int
		commit, out, want string
	}{
		{10, "abc", published, ""},
		{10, "abc-dirty", published, "the tree has uncommitted changes"},
		{1, "abc", "./" + published, "at least 5 rounds"},
		{1, "abc", filepath.Join(dir, published), "at least 5 rounds"},
		{1, "abc-dirty", "bin/x.json", ""},
		{0, "abc", "bin/x.json", "-rounds: 0 is too few"},
	} {
		b := &bench{rounds: c.rounds, here: results.Place{Commit: c.commit}, messages: 1000, options: options{out: c.out}}
		if err := b.check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Invalid options are reported before anything runs, with the valid ones.
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
		{options{}, 99, "-n: 99 is not from 100 to"},
		{options{}, 2e6, "-n: 2000000 is not from 100 to"},
		{options{server: "a"}, 1000, "two hosts need all of"},
		{options{address: "10.0.0.1"}, 1000, "two hosts need all of"},
		{options{args: "-x 3"}, 1000, "-args and -server-args are only for two hosts"},
		{options{serverArgs: "-x 3"}, 1000, "two hosts need all of"},
		{options{server: "a", client: "b", address: "c", args: "-R"}, 1000, "-args: the server must listen on TCP"},
		{options{out: broken}, 1000, "-o: " + broken},
		{options{out: filepath.Join(broken, "x.json")}, 1000, "-o: "},
		{options{only: "rxe,"}, 1000, `-only: unknown part "": the parts are rxe, mlx5, cost,` +
			` rsocket, rsocket-two, rsocket-cost, messages, messages-cost, native`},
		{options{server: "a", client: "b", address: "c", only: "rxe"}, 1000, "the parts are hosts, native"},
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

// Parts that have none of the selected tests are left out.
func TestParts(t *testing.T) {
	for o, want := range map[options]string{
		{}:                                "rxe mlx5 cost rsocket rsocket-two rsocket-cost messages messages-cost native",
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
