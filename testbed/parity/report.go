package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/testbed/pyverbs"
)

// An outcome is the outcome of a test.
type outcome = pyverbs.Outcome

const (
	pass         = pyverbs.Pass
	fail         = pyverbs.Fail
	skip         = pyverbs.Skip
	none outcome = "none" // the test does not exist or did not run
)

// A report holds the contents of the page.
type report struct {
	library  string            // version of rdma-core
	releases map[string]string // of the kernels
	results  []*result
}

// A result holds the results of a suite.
type result struct {
	suite
	cases []*testCase
	// brief has the page's text, by kernel, for a module without Go tests: the
	// outcomes of its tests on rxe are counted, not listed.
	brief map[string]string
}

// A testCase is a Python test and the Go test of its name, with their outcomes at
// each place.
type testCase struct {
	name      string
	inC, inGo map[place]outcome
}

func newReport() *report {
	r := &report{releases: make(map[string]string)}
	for _, module := range withGo() {
		r.suite(module)
	}
	return r
}

// suite returns the result of a module, and adds it if necessary.
func (r *report) suite(module string) *result {
	i := slices.IndexFunc(r.results, func(s *result) bool { return s.module == module })
	if i >= 0 {
		return r.results[i]
	}
	s := &result{suite: suiteOf(module), brief: make(map[string]string)}
	r.results = append(r.results, s)
	slices.SortFunc(r.results, func(a, b *result) int { return cmp.Compare(a.module, b.module) })
	return s
}

// listed reports whether the page lists the tests one by one.
func (r *result) listed() bool {
	return r.goTest != "" || slices.ContainsFunc(everywhere(), func(p place) bool { c, _ := r.passed(p); return c > 0 })
}

// counted returns the counts of outcomes on rxe, such as "5 skip", or the page's text
// if the tests have not run.
func (r *result) counted(kernel string) string {
	n := make(map[outcome]int)
	for _, t := range r.cases {
		if o := at(t.inC, place{rxe, kernel}); o != none {
			n[o]++
		}
	}
	if len(n) == 0 {
		return r.brief[kernel]
	}
	var parts []string
	for _, o := range []outcome{pass, fail, skip} {
		if n[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[o], o))
		}
	}
	return strings.Join(parts, " and ")
}

// passed returns the numbers of tests that pass at a place.
func (r *result) passed(p place) (c, golang int) {
	for _, t := range r.cases {
		if at(t.inC, p) == pass {
			c++
		}
		if at(t.inGo, p) == pass {
			golang++
		}
	}
	return c, golang
}

// passed returns the numbers of tests in all suites that pass at a place.
func (r *report) passed(p place) (c, golang int) {
	for _, s := range r.results {
		x, y := s.passed(p)
		c, golang = c+x, golang+y
	}
	return c, golang
}

// forget removes the outcomes of all tests at a place, or only of the Go tests.
func (r *report) forget(p place, x extent) {
	for _, s := range r.results {
		if !x.has(s.module) {
			continue
		}
		if p.device == rxe && !x.golang {
			delete(s.brief, p.kernel)
		}
		for _, t := range s.cases {
			delete(t.inGo, p)
			if !x.golang {
				delete(t.inC, p)
			}
		}
		s.cases = slices.DeleteFunc(s.cases, func(t *testCase) bool { return len(t.inC)+len(t.inGo) == 0 })
	}
}

// summary formats both counts of places.
func (r *report) summary(places ...place) string {
	var b strings.Builder
	for _, p := range places {
		c, golang := r.passed(p)
		fmt.Fprintf(&b, "%v: %d tests pass with C, %d with Go\n", p, c, golang)
	}
	return b.String()
}

// test returns the case of a name, and adds it if necessary.
func (r *result) test(name string) *testCase {
	i := slices.IndexFunc(r.cases, func(c *testCase) bool { return c.name == name })
	if i >= 0 {
		return r.cases[i]
	}
	c := &testCase{name: name, inC: make(map[place]outcome), inGo: make(map[place]outcome)}
	r.cases = append(r.cases, c)
	slices.SortFunc(r.cases, func(a, b *testCase) int { return cmp.Compare(a.name, b.name) })
	return c
}

// at returns the outcome at a place.
func at(m map[place]outcome, p place) outcome {
	if o, ok := m[p]; ok {
		return o
	}
	return none
}

// floors lists how many tests must pass with C. Fewer mean that the tests do not run,
// for example because a module cannot be imported.
var floors = map[place]int{
	{rxe, "6.1"}: 100, {rxe, "6.12"}: 102, {rxe, "7.2"}: 109,
	{roce, "6.1"}: 135, {roce, "6.12"}: 135, {roce, "7.2"}: 135,
	{ib, "6.1"}: 110, {ib, "6.12"}: 110, {ib, "7.2"}: 110,
}

// behind returns an error with the tests that pass with C but not with Go, and the
// places where fewer tests pass with Go than with C, or fewer with C than its floor.
func (r *report) behind(places ...place) error {
	var errs []error
	for _, p := range places {
		for _, s := range r.results {
			for _, t := range s.cases {
				if o := at(t.inGo, p); at(t.inC, p) == pass && o != pass {
					errs = append(errs, fmt.Errorf("%v: %s.%s passes with C; with Go: %s", p, s.module, t.name, o))
				}
			}
		}
		c, golang := r.passed(p)
		if golang < c {
			errs = append(errs, fmt.Errorf("%v: %d tests pass with C, only %d with Go", p, c, golang))
		}
		if c < floors[p] {
			errs = append(errs, fmt.Errorf("%v: %d tests pass with C, where %d did: see what keeps the others from it", p, c,
				floors[p]))
		}
	}
	return errors.Join(errs...)
}
