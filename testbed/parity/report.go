package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/testbed/pyverbs"
)

// An outcome is what came of a test.
type outcome = pyverbs.Outcome

const (
	pass         = pyverbs.Pass
	fail         = pyverbs.Fail
	skip         = pyverbs.Skip
	none outcome = "none" // there is no such test, or it did not run
)

// A report is what the page says.
type report struct {
	library  string            // version of rdma-core
	releases map[string]string // of the kernels
	results  []*result
}

// A result is what came of a suite.
type result struct {
	suite
	cases []*testCase
	// brief is what the page says, by kernel, of a module that has no Go tests:
	// what comes of its tests on rxe is counted, not listed.
	brief map[string]string
}

// A testCase is a Python test and the Go test of its name, with what came of
// them at each place.
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

// suite is the result of a module, a new one if need be.
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

// listed tells whether the page has the tests one by one.
func (r *result) listed() bool {
	return r.goTest != "" || slices.ContainsFunc(everywhere(), func(p place) bool { c, _ := r.passed(p); return c > 0 })
}

// counted is what came of the tests on rxe: "5 skip". Where they have not run it
// is what the page said.
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

// passed counts what passes at a place.
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

// passed counts what passes at a place in all suites.
func (r *report) passed(p place) (c, golang int) {
	for _, s := range r.results {
		x, y := s.passed(p)
		c, golang = c+x, golang+y
	}
	return c, golang
}

// forget drops what came of all tests at a place, or of the Go tests alone.
func (r *report) forget(p place, golang bool) {
	for _, s := range r.results {
		if p.device == rxe && !golang {
			delete(s.brief, p.kernel)
		}
		for _, t := range s.cases {
			delete(t.inGo, p)
			if !golang {
				delete(t.inC, p)
			}
		}
		s.cases = slices.DeleteFunc(s.cases, func(t *testCase) bool { return len(t.inC)+len(t.inGo) == 0 })
	}
}

// summary has both counts of places.
func (r *report) summary(places ...place) string {
	var b strings.Builder
	for _, p := range places {
		c, golang := r.passed(p)
		fmt.Fprintf(&b, "%v: %d tests pass with C, %d with Go\n", p, c, golang)
	}
	return b.String()
}

// test is the case of that name, a new one if need be.
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

// at is the outcome at a place.
func at(m map[place]outcome, p place) outcome {
	if o, ok := m[p]; ok {
		return o
	}
	return none
}

// floors are how many tests pass with C: fewer mean that something, such as a
// module that cannot be imported, keeps the tests from running.
var floors = map[place]int{
	{rxe, "6.1"}: 100, {rxe, "6.12"}: 102, {rxe, "7.2"}: 109,
	{roce, "6.1"}: 135, {roce, "6.12"}: 135, {roce, "7.2"}: 135,
	{ib, "6.1"}: 110, {ib, "6.12"}: 110, {ib, "7.2"}: 110,
}

// behind is an error that names what passes with C and not with Go, and the
// places where Go's count is the lower one, or that of C below its floor.
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
			errs = append(errs, fmt.Errorf("%v: %d tests pass with C, where %d did: see what keeps the others from it", p, c, floors[p]))
		}
	}
	return errors.Join(errs...)
}
