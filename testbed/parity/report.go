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
	// brief is what the page says, by kernel, of a module of which nothing
	// passes: its tests are counted, not listed.
	brief map[string]string
}

// A testCase is a Python test and the Go test of its name, with what came of
// them on each kernel.
type testCase struct {
	name      string
	inC, inGo map[string]outcome
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
	return r.goTest != "" || slices.ContainsFunc(kernels, func(k string) bool { c, _ := r.passed(k); return c > 0 })
}

// counted is what came of the tests on a kernel: "5 skip".
func (r *result) counted(kernel string) string {
	if len(r.cases) == 0 {
		return r.brief[kernel]
	}
	n := make(map[outcome]int)
	for _, t := range r.cases {
		n[on(t.inC, kernel)]++
	}
	var parts []string
	for _, o := range []outcome{pass, fail, skip, none} {
		if n[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[o], o))
		}
	}
	return strings.Join(parts, ", ")
}

// passed counts what passes on a kernel.
func (r *result) passed(kernel string) (c, golang int) {
	for _, t := range r.cases {
		if on(t.inC, kernel) == pass {
			c++
		}
		if on(t.inGo, kernel) == pass {
			golang++
		}
	}
	return c, golang
}

// passed counts what passes on a kernel in all suites.
func (r *report) passed(kernel string) (c, golang int) {
	for _, s := range r.results {
		x, y := s.passed(kernel)
		c, golang = c+x, golang+y
	}
	return c, golang
}

// summary has both counts of each kernel.
func (r *report) summary() string {
	var b strings.Builder
	for _, k := range kernels {
		c, golang := r.passed(k)
		fmt.Fprintf(&b, "kernel %s: %d tests pass with C, %d with Go\n", k, c, golang)
	}
	return b.String()
}

// test is the case of that name, a new one if need be.
func (r *result) test(name string) *testCase {
	i := slices.IndexFunc(r.cases, func(c *testCase) bool { return c.name == name })
	if i >= 0 {
		return r.cases[i]
	}
	c := &testCase{name: name, inC: make(map[string]outcome), inGo: make(map[string]outcome)}
	r.cases = append(r.cases, c)
	slices.SortFunc(r.cases, func(a, b *testCase) int { return cmp.Compare(a.name, b.name) })
	return c
}

// on is the outcome on a kernel.
func on(m map[string]outcome, kernel string) outcome {
	if o, ok := m[kernel]; ok {
		return o
	}
	return none
}

// floors are how many tests pass with C, by kernel: fewer mean that something,
// such as a module that cannot be imported, keeps the tests from running.
var floors = map[string]int{"6.1": 100, "6.12": 102, "7.2": 109}

// behind is an error that names what passes with C and not with Go, and the
// kernels on which Go's count is the lower one, or that of C below its floor.
func (r *report) behind(kernels ...string) error {
	var errs []error
	for _, k := range kernels {
		for _, s := range r.results {
			for _, t := range s.cases {
				if o := on(t.inGo, k); on(t.inC, k) == pass && o != pass {
					errs = append(errs, fmt.Errorf("kernel %s: %s.%s passes with C; with Go: %s", k, s.module, t.name, o))
				}
			}
		}
		c, golang := r.passed(k)
		if golang < c {
			errs = append(errs, fmt.Errorf("kernel %s: %d tests pass with C, only %d with Go", k, c, golang))
		}
		if c < floors[k] {
			errs = append(errs, fmt.Errorf("kernel %s: %d tests pass with C, where %d did: see what keeps the others from it", k, c, floors[k]))
		}
	}
	return errors.Join(errs...)
}
