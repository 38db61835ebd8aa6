package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/results"
)

// A game that fails is reported, and left out after it has failed twice. The others
// continue. Its figures of one program only are not kept.
func TestGameDies(t *testing.T) {
	played := map[string]int{}
	h := &fake{func(args []string) (string, error) {
		switch {
		case args[0] == "sh" || args[len(args)-1] != "10.9.0.1":
			return "", nil
		case args[0] == "ib_send_lat":
			played["dead"]++
			return "", errors.New("killed")
		case slices.Contains(args, "send_lat"):
			return latency, nil
		}
		played["other"]++
		return rate, nil
	}}
	m := &machine{
		server:   h,
		client:   h,
		address:  "10.9.0.1",
		programs: map[string][2]string{"bench/goverbs-perftest": {"/go", "/go"}},
	}
	b := &bench{rounds: 4, tests: regexp.MustCompile(""), options: options{out: filepath.Join(t.TempDir(), "run.json")}}
	b.play(t.Context(), m, "rxe", append(games([]string{"send_lat"}, []int{64}, 1000),
		games([]string{"send_bw"}, []int{2}, 1000)...))
	if played["dead"] != 2 || played["other"] != 8 {
		t.Errorf("played %v", played)
	}
	if f := b.run.Failures; len(f) != 2 || f[0].Part != "rxe" || f[0].What != "send_lat, 64, round 1" ||
		!strings.Contains(f[0].Why, "C: killed") {
		t.Errorf("failures %v", f)
	}
	if len(b.run.Of("rxe", "send_lat", "")) != 0 || len(b.run.Of("rxe", "send_bw", "rate")[0].Values[results.C]) != 4 {
		t.Errorf("series %v", b.run.Series)
	}
	if err := b.finish(); err == nil || !strings.Contains(err.Error(),
		"some measurements failed: rxe send_lat, 64, round 1; rxe") {
		t.Error(err)
	}
	if r, err := results.Read(b.options.out); err != nil || len(r.Failures) != 2 || len(r.Series) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

// play gives up a place where nothing works any more.
func TestPlaceDies(t *testing.T) {
	tried := 0
	h := &fake{func(args []string) (string, error) {
		if args[len(args)-1] == "10.9.0.1" {
			tried++
		}
		return "", errors.New("the guest has gone")
	}}
	m := &machine{
		server:   h,
		client:   h,
		address:  "10.9.0.1",
		programs: map[string][2]string{"bench/goverbs-perftest": {"/go", "/go"}},
	}
	b := &bench{rounds: 9, tests: regexp.MustCompile("")}
	b.play(t.Context(), m, "rxe", games([]string{"send_lat", "send_bw"}, []int{2, 64, 128}, 1000))
	if f := b.run.Failures; len(f) != 4 || !strings.Contains(f[3].Why, "nothing works any more") || tried > 3 {
		t.Errorf("%d tries, %v", tried, f)
	}
}

// A run without figures does not change the file.
func TestNothingMeasured(t *testing.T) {
	b := &bench{options: options{out: filepath.Join(t.TempDir(), "run.json")}}
	if err := os.WriteFile(b.options.out, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.run.Places = []results.Place{{Name: "rxe"}}
	b.fail("rxe", "perftest", errors.New("interrupted"))
	if err := b.finish(); err == nil || !strings.Contains(err.Error(), "nothing was measured") {
		t.Error(err)
	}
	if text, err := os.ReadFile(b.options.out); err != nil || string(text) != "{}" {
		t.Errorf("%q, %v", text, err)
	}
}

// Changes of the page and its figures do not make a tree dirty; changes of programs do.
func TestCommit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"git", "-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)
		if out, err := local(t.Context(), nil, args...); err != nil {
			t.Fatal(err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	for _, name := range []string{"a.go", "bench/figures/go-and-c.json", "docs/go-and-c.md",
		"docs/evidence/go-and-c.md", "docs/charts/a.svg"} {
		write(name, "1")
	}
	git("add", ".")
	git("commit", "-qm", "a")
	for _, c := range []struct {
		change string
		dirty  bool
	}{{"bench/figures/go-and-c.json", false}, {"docs/charts/a.svg", false}, {"docs/go-and-c.md", false},
		{"docs/evidence/go-and-c.md", false}, {"a.go", true}} {
		write(c.change, "2")
		name, err := commit(t.Context(), dir)
		if err != nil || len(strings.TrimSuffix(name, dirty)) != 9 || strings.HasSuffix(name, dirty) != c.dirty {
			t.Errorf("%s: %q, %v", c.change, name, err)
		}
	}
}
