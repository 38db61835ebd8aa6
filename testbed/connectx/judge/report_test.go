package main

import (
	"strings"
	"testing"

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
