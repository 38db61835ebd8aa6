package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/pyverbs"
)

func sample() *report {
	r := newReport()
	r.library = "56.1"
	for _, p := range places {
		r.releases[p.kernel] = p.kernel + ".9-amd64"
		r.add(p, []pyverbs.Result{
			{Module: "test_addr", Name: "test_ah", Outcome: pyverbs.Pass},
			{Module: "test_addr", Name: "test_gid", Outcome: pyverbs.Skip, Why: "no|GID\nat all"},
			{Module: "test_other", Name: "test_vendor", Outcome: pyverbs.Skip, Why: "not mine"},
		})
	}
	r.add(place{"6.1", roce}, []pyverbs.Result{{Module: "test_addr", Name: "test_gid", Outcome: pyverbs.Pass}})
	return r
}

func TestPage(t *testing.T) {
	r := sample()
	text := r.render()
	for _, want := range []string{
		"| test_addr | 1, 1 skip | 1, 1 skip | 1, 1 skip | 2 | 1, 1 skip | 1, 1 skip |\n",
		"| all | 1, 2 skip | 1, 2 skip | 1, 2 skip | 2, 1 skip | 1, 2 skip | 1, 2 skip |\n",
		"| `test_addr.test_gid` | 6.1 ib, 6.12 ib, 7.2 ib, 6.12 roce, 7.2 roce | no\\|GID |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	for _, p := range places {
		rec, err := readPage(text, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.behind(p, rec); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
	if _, err := readPage(text, place{"5.10", ib}); err == nil {
		t.Error("the page has a column of a kernel that did not run")
	}
	if _, err := readPage("", places[0]); err == nil {
		t.Error("an empty page is no error")
	}
}

// TestParsePage checks that a page's report has the page, and that new results
// replace those of their module and place only.
func TestParsePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", pageFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{sample().render(), string(page)} {
		r, err := parsePage(page)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(page, r.render()); d != "" {
			t.Errorf("(-page +parsed):\n%s", d)
		}
	}
	r, err := parsePage(sample().render())
	if err != nil {
		t.Fatal(err)
	}
	p := places[0]
	r.forget(p, []string{"test_other"})
	r.add(p, []pyverbs.Result{{Module: "test_other", Name: "test_vendor", Outcome: pyverbs.Pass}})
	if text := r.render(); !strings.Contains(text, "| all | 2, 1 skip | 1, 2 skip |") {
		t.Errorf("a skipped test that now passes:\n%s", text)
	}
	if r.forget(p, nil); r.count("", p, pyverbs.Pass) != 0 || r.count("", places[1], pyverbs.Pass) != 1 {
		t.Error("the results of a place were not forgotten, or those of another")
	}
	for _, bad := range []string{"", strings.Replace(sample().render(), "| 1, 1 skip |", "| 1, 1 fail |", 1)} {
		if _, err := parsePage(bad); err == nil {
			t.Errorf("no error for the page %q", bad)
		}
	}
}

// TestBehind checks that a failure, a new skip and a test that no longer passes
// are detected.
func TestBehind(t *testing.T) {
	page := sample().render()
	p := place{"6.1", roce}
	rec, err := readPage(page, p)
	if err != nil {
		t.Fatal(err)
	}
	r := newReport()
	r.add(p, []pyverbs.Result{
		{Module: "test_addr", Name: "test_ah", Outcome: pyverbs.Fail, Why: "1 != 2"},
		{Module: "test_addr", Name: "test_gid", Outcome: pyverbs.Skip, Why: "no GID"},
		{Module: "test_other", Name: "test_vendor", Outcome: pyverbs.Skip, Why: "not mine"},
	})
	got := r.behind(p, rec).Error()
	for _, want := range []string{
		"test_addr.test_ah failed: 1 != 2", "test_addr.test_gid is skipped, which it was not: no GID", "0 tests pass, 2 did",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "test_vendor") {
		t.Errorf("a listed skip is reported:\n%s", got)
	}
}
