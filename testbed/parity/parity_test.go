package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if err := r.behind(); err != nil {
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
		if err := s.readPython([]byte("\nparity: {\"name\": \"test_b\", \"outcome\": \"pass\", \"why\": \"\"}\nchatter\n\n"+
			"parity: {\"name\": \"test_a\", \"outcome\": \"skip\", \"why\": \"no\"}\n\nparity: end\n"), k, io.Discard); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			s.readGo([]byte("=== RUN   "+s.goTest+"\n--- FAIL: "+s.goTest+" (0.1s)\n    --- FAIL: "+s.goTest+"/test_b (0.01s)\n"+
				"    --- PASS: "+s.goTest+"/test_c (0.01s)\nFAIL\n"), k)
		}
	}
	text := r.render()
	for _, want := range []string{
		"| `test_a` | skip | skip | skip | none | none | none |\n",
		"| `test_b` | pass | pass | pass | none | fail | fail |\n",
		"| `test_c` | none | none | none | none | pass | pass |\n",
		"| passed | 1 of 3 | 1 of 3 | 1 of 3 | 0 of 3 | 1 of 3 | 1 of 3 |\n",
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
	err = again.behind()
	if err == nil || strings.Count(err.Error(), "\n") != len(kernels)-1 || !strings.Contains(err.Error(), "kernel "+kernels[0]+": test_b passes with C; with Go: none") {
		t.Errorf("behind: %v", err)
	}
}

func TestPythonThatDies(t *testing.T) {
	r := newReport().results[0]
	for _, out := range []string{"", "parity: {\"name\": \"test_a\", \"outcome\": \"pass\"}\nSegmentation fault\n", "parity: nonsense\nparity: end\n"} {
		if err := r.readPython([]byte(out), kernels[0], io.Discard); err == nil {
			t.Errorf("no error of %q", out)
		}
	}
}
