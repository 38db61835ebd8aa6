package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// An outcome is what came of a test.
type outcome string

const (
	pass outcome = "pass"
	fail outcome = "fail"
	skip outcome = "skip"
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
}

// A testCase is a Python test and the Go test of its name, with what came of
// them on each kernel.
type testCase struct {
	name      string
	inC, inGo map[string]outcome
}

func newReport() *report {
	r := &report{releases: make(map[string]string)}
	for _, s := range suites {
		r.results = append(r.results, &result{suite: s})
	}
	return r
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

// behind is an error that names what passes with C and not with Go.
func (r *report) behind() error {
	var errs []error
	for _, s := range r.results {
		for _, c := range s.cases {
			for _, k := range kernels {
				if o := on(c.inGo, k); on(c.inC, k) == pass && o != pass {
					errs = append(errs, fmt.Errorf("kernel %s: %s passes with C; with Go: %s", k, c.name, o))
				}
			}
		}
	}
	return errors.Join(errs...)
}
