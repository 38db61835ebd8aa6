package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/pyverbs"
)

// root is the repository's root. Tests run in their package's directory.
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

// TestPage checks that the page is one that this program writes, and that it lists
// the Go tests.
func TestPage(t *testing.T) {
	text, r := readPage(t)
	if d := cmp.Diff(r.render(), text); d != "" {
		t.Errorf("%s is not as `go run -C testbed ./parity -write` writes it (-want +got):\n%s", page, d)
	}
	if err := r.behind(everywhere()...); err != nil {
		t.Error(err)
	}
	if r.library == "" {
		t.Error("the page does not have rdma-core's version")
	}
	for _, k := range kernels {
		if !strings.HasPrefix(r.releases[k], k+".") {
			t.Errorf("the page's release of kernel %s is %q", k, r.releases[k])
		}
	}
	for _, s := range r.results {
		if s.goTest == "" {
			if !s.listed() && reason(s.module) == "" {
				t.Errorf("%s has no Go tests: add the reason to suite.go", s.module)
			}
			continue
		}
		have, err := s.goNames(root)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for _, c := range s.cases {
			rows = append(rows, c.name)
			for _, p := range everywhere() {
				if ran := at(c.inGo, p); slices.Contains(have, c.name) == (ran == none) {
					t.Errorf("%v: the page says of the Go test %s: %s", p, c.name, ran)
				}
			}
		}
		for _, name := range have {
			if !slices.Contains(rows, name) {
				t.Errorf("%s/%s is not on the page: run `go run -C testbed ./parity -write`", s.goTest, name)
			}
		}
	}
}

// TestConnectXPage compares the page with that of the software ConnectX, for which
// all modules run. Tests that pass there with C are on this page, or are not about
// verbs.
func TestConnectXPage(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "evidence", "soft-connectx-pyverbs.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, r := readPage(t)
	names := map[string]string{"ib": ib, "roce": roce}
	modules := 0
	var columns []place
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if cells[0] == "module" {
			for _, c := range cells[1:] {
				kernel, link, _ := strings.Cut(c, " ")
				columns = append(columns, place{names[link], kernel})
			}
		}
		if !strings.HasPrefix(cells[0], "test_") || len(cells) != 1+len(columns) || len(columns) == 0 {
			continue
		}
		modules++
		s := suiteOf(cells[0])
		if s.goTest == "" {
			if reason(s.module) == "" {
				t.Errorf("%s has no Go tests: add the reason to suite.go", s.module)
			}
			continue
		}
		for i, p := range columns {
			number, _, _ := strings.Cut(cells[1+i], ",")
			if c, _ := r.suite(s.module).passed(p); strconv.Itoa(c) != number {
				t.Errorf("%v: %s: %d tests pass with C, by the ConnectX's page %s", p, s.module, c, number)
			}
		}
	}
	if modules < len(suites) || len(columns) != 2*len(kernels) {
		t.Errorf("%d modules and the places %v on the ConnectX's page", modules, columns)
	}
}

func TestChoose(t *testing.T) {
	if all, err := choose(""); err != nil || len(all) != len(devices)*len(kernels) {
		t.Errorf("%v, %v", all, err)
	}
	if some, err := choose("rxe 6.1, mlx5 IB 7.2"); err != nil || !slices.Equal(some, []place{{rxe, "6.1"}, {ib, "7.2"}}) {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := choose("rxe 6.2"); err == nil || !strings.Contains(err.Error(), "mlx5 RoCE 6.12") {
		t.Errorf("%v", err)
	}
}

func TestReasons(t *testing.T) {
	for module, want := range map[string]string{"test_mlx5_dr": "mlx5dv", "test_efadv": "EFA", "test_addr": ""} {
		if why := reason(module); !strings.Contains(why, want) || want == "" && why != "" {
			t.Errorf("%s: %q", module, why)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	r := newReport()
	r.library = "56.1"
	s := r.results[0]
	for i, k := range kernels {
		r.releases[k] = k + ".9-amd64"
		p := place{rxe, k}
		r.readPython([]pyverbs.Result{
			{Module: s.module, Name: "test_b", Outcome: pass}, {Module: s.module, Name: "test_a", Outcome: skip},
			{Module: "test_else", Name: "test_d", Outcome: skip}, {Module: "test_else", Name: "test_e", Outcome: fail},
		}, p, io.Discard)
		if i > 0 {
			r.readGo([]byte("=== RUN   "+s.goTest+"\n--- FAIL: "+s.goTest+" (0.1s)\n    --- FAIL: "+s.goTest+"/test_b (0.01s)\n"+
				"    --- PASS: "+s.goTest+"/test_c (0.01s)\nFAIL\n"), p)
		}
	}
	r.readPython([]pyverbs.Result{{Module: s.module, Name: "test_b", Outcome: pass}}, place{ib, "7.2"}, io.Discard)
	text := r.render()
	for _, want := range []string{
		"| `test_a` | skip | none | none | none | none | none |\n",
		"| `test_b` | pass | none, fail, fail | none | none | none, none, pass | none |\n",
		"| `test_c` | none | none, pass, pass | none | none | none | none |\n",
		"| passed | 1 | 0, 1, 1 | 0 | 0 | 0, 0, 1 | 0 |\n",
		"| [" + s.module + "](#" + s.module + ") | 1 | 0, 1, 1 | 0 | 0 | 0, 0, 1 | 0 |\n",
		"| test_else | 1 fail and 1 skip |  |\n",
		"| all | 1 | 0, 1, 1 | 0 | 0 | 0, 0, 1 | 0 |\n",
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
	got := fmt.Sprint(again.behind(everywhere()...))
	for _, want := range []string{
		"rxe 6.1: " + s.module + ".test_b passes with C; with Go: none\n",
		"rxe 6.1: 1 tests pass with C, only 0 with Go\n",
		"rxe 7.2: " + s.module + ".test_b passes with C; with Go: fail",
		"rxe 7.2: 1 tests pass with C, where 109 did",
		"mlx5 IB 7.2: " + s.module + ".test_b passes with C; with Go: none\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("behind does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, ".test_a ") || strings.Contains(got, "rxe 7.2: 1 tests pass with C, only") {
		t.Errorf("behind: %s", got)
	}
	if got, want := again.summary(place{rxe, "6.1"}), "rxe 6.1: 1 tests pass with C, 0 with Go\n"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	again.forget(place{rxe, "6.12"}, extent{})
	again.readPython([]pyverbs.Result{{Module: "test_else", Name: "test_d", Outcome: skip}}, place{rxe, "6.12"},
		io.Discard)
	if text := again.render(); !strings.Contains(text,
		"| test_else | 1 fail and 1 skip, 1 skip, 1 fail and 1 skip |  |\n") {
		t.Errorf("after a run at one place:\n%s", text)
	}
	again.forget(place{ib, "7.2"}, extent{golang: true})
	if c, golang := again.passed(place{ib, "7.2"}); c != 1 || golang != 0 {
		t.Errorf("after Go's tests are forgotten, %d pass with C and %d with Go", c, golang)
	}
	again.forget(place{ib, "7.2"}, extent{})
	if text := again.render(); !strings.Contains(text,
		"| `test_b` | pass, none, pass | none, none, fail | none | none | none | none |\n") {
		t.Errorf("after one place is forgotten:\n%s", text)
	}
}

func TestBadCells(t *testing.T) {
	for _, row := range []string{"| `test_a` | pass |", "| `test_a` | pass, skip | pass | pass | pass | pass | pass |"} {
		if _, err := parse("## test_addr\n\n" + row + "\n"); err == nil {
			t.Errorf("%s is no error", row)
		}
	}
	if _, err := parse("| `test_a` | pass | pass | pass | pass | pass | pass |\n"); err == nil {
		t.Error("no error for a row outside a module")
	}
}

// column returns the outcomes of all tests at a place, with C and with Go.
func (r *report) column(p place) map[string][2]outcome {
	all := make(map[string][2]outcome)
	for _, s := range suites {
		for _, c := range r.suite(s.module).cases {
			all[s.module+"."+c.name] = [2]outcome{at(c.inC, p), at(c.inGo, p)}
		}
	}
	return all
}

// alike makes two columns equal where they may differ: in the results of C of modules
// that did not run, and where one has a failure, which may be accidental.
func alike(page, now map[string][2]outcome, ran []string) {
	for name, o := range page {
		c, ok := now[name]
		if !ok {
			c = [2]outcome{none, none}
		}
		if module, _, _ := strings.Cut(name, "."); !slices.Contains(ran, module) {
			c[0] = o[0]
		}
		if c[0] == fail || o[0] == fail {
			o[0], c[0] = fail, fail
		}
		page[name], now[name] = o, c
	}
}

func TestAlike(t *testing.T) {
	page := map[string][2]outcome{
		"a.x": {pass, pass},
		"a.y": {fail, pass},
		"a.z": {pass, pass},
		"b.x": {skip, skip},
		"b.y": {skip, pass},
		"a.n": {skip, none},
		"b.n": {skip, none},
	}
	now := map[string][2]outcome{
		"a.x": {pass, pass},
		"a.y": {pass, pass},
		"a.z": {skip, pass},
		"b.x": {none, skip},
		"b.y": {none, fail},
	}
	alike(page, now, []string{"a"})
	for name, want := range map[string]bool{"a.x": true, "a.y": true, "a.z": false, "b.x": true, "b.y": false,
		"a.n": false, "b.n": true} {
		if page[name] == now[name] != want {
			t.Errorf("%s: %v and %v", name, page[name], now[name])
		}
	}
}
