package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/pyverbs"
)

// root is the module's root: tests run in their package's directory.
var root = filepath.Join("..", "..")

func readPage(t *testing.T) (string, *report) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return string(b), r
}

// TestPage holds the page to what this program writes, and to the Go tests.
func TestPage(t *testing.T) {
	text, r := readPage(t)
	if d := cmp.Diff(r.render(), text); d != "" {
		t.Errorf("%s is not as `go run ./testbed/parity -write` writes it (-want +got):\n%s", page, d)
	}
	if err := r.behind(kernels...); err != nil {
		t.Error(err)
	}
	if r.library == "" {
		t.Error("the page does not say which rdma-core was run")
	}
	for _, k := range kernels {
		if !strings.HasPrefix(r.releases[k], k+".") {
			t.Errorf("the page's release of kernel %s is %q", k, r.releases[k])
		}
	}
	for _, s := range r.results {
		if s.goTest == "" {
			continue
		}
		have, err := s.goNames(root)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for _, c := range s.cases {
			rows = append(rows, c.name)
			if ran := c.cells()[len(kernels):]; slices.Contains(have, c.name) == slices.Contains(ran, string(none)) {
				t.Errorf("%s: the page says of the Go test %v", c.name, ran)
			}
		}
		for _, name := range have {
			if !slices.Contains(rows, name) {
				t.Errorf("%s/%s is not on the page: run `go run ./testbed/parity -write`", s.goTest, name)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	r := newReport()
	r.library = "56.1"
	s := r.results[0]
	for i, k := range kernels {
		r.releases[k] = k + ".9-amd64"
		r.readPython([]pyverbs.Result{
			{Module: s.module, Name: "test_b", Outcome: pass}, {Module: s.module, Name: "test_a", Outcome: skip},
			{Module: "test_else", Name: "test_d", Outcome: skip}, {Module: "test_else", Name: "test_e", Outcome: fail},
		}, k, io.Discard)
		if i > 0 {
			r.readGo([]byte("=== RUN   "+s.goTest+"\n--- FAIL: "+s.goTest+" (0.1s)\n    --- FAIL: "+s.goTest+"/test_b (0.01s)\n"+
				"    --- PASS: "+s.goTest+"/test_c (0.01s)\nFAIL\n"), k)
		}
	}
	text := r.render()
	for _, want := range []string{
		"| `test_a` | skip | skip | skip | none | none | none |\n",
		"| `test_b` | pass | pass | pass | none | fail | fail |\n",
		"| `test_c` | none | none | none | none | pass | pass |\n",
		"| passed | 1 | 1 | 1 | 0 | 1 | 1 |\n",
		"| [" + s.module + "](#" + s.module + ") | 1 | 1 | 1 | 0 | 1 | 1 |\n",
		"| test_else | 1 fail, 1 skip | 1 fail, 1 skip | 1 fail, 1 skip |\n",
		"| all | 1 | 1 | 1 | 0 | 1 | 1 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	again, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(text, again.render()); d != "" {
		t.Error(d)
	}
	const first = "6.1"
	got := fmt.Sprint(again.behind(kernels...))
	for _, want := range []string{
		"kernel 6.1: " + s.module + ".test_b passes with C; with Go: none\n",
		"kernel 6.1: 1 tests pass with C, only 0 with Go\n",
		"kernel 7.2: " + s.module + ".test_b passes with C; with Go: fail",
		"kernel 7.2: 1 tests pass with C, where 109 did",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("behind does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, ".test_a ") || strings.Contains(got, "kernel 7.2: 1 tests pass with C, only") {
		t.Errorf("behind: %s", got)
	}
	if got, want := again.summary(), "kernel "+first+": 1 tests pass with C, 0 with Go\n"; !strings.HasPrefix(got, want) {
		t.Errorf("summary %q, want %q", got, want)
	}
}
