package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/testbed/pyverbs"
)

var (
	libraryLine = regexp.MustCompile(`(?m)^- rdma-core (.*)$`)
	releaseLine = regexp.MustCompile(`(?m)^- Linux (\S+): (.*)$`)
	moduleRow   = regexp.MustCompile(`(?m)^\| (test_\w+) \|(.*)\|$`)
	reasonRow   = regexp.MustCompile("(?m)^\\| `(test_\\w+)\\.(test_\\w+)` \\| ([^|]*) \\| (.*) \\|$")
)

// parsePage returns the report of a page. The page has the numbers of the tests
// that passed, and not their names: the report has other names for them.
func parsePage(page string) (*report, error) {
	r := newReport()
	m := libraryLine.FindStringSubmatch(page)
	if m == nil {
		return nil, errors.New("the page does not name rdma-core's version")
	}
	r.library = m[1]
	for _, m := range releaseLine.FindAllStringSubmatch(page, -1) {
		r.releases[m[1]] = m[2]
	}
	for _, m := range moduleRow.FindAllStringSubmatch(page, -1) {
		cells := strings.Split(m[2], "|")
		if len(cells) != len(places) {
			return nil, fmt.Errorf("the page's row of %s has %d places, want %d", m[1], len(cells), len(places))
		}
		for i, p := range places {
			number, _, _ := strings.Cut(strings.TrimSpace(cells[i]), ",")
			n, err := strconv.Atoi(number)
			if err != nil || strings.Contains(cells[i], string(pyverbs.Fail)) {
				return nil, fmt.Errorf("the page's row of %s: %q: run all tests", m[1], cells[i])
			}
			for k := range n {
				r.add(p, []pyverbs.Result{{Module: m[1], Name: fmt.Sprint("passed ", k), Outcome: pyverbs.Pass}})
			}
		}
	}
	for _, m := range reasonRow.FindAllStringSubmatch(page, -1) {
		for _, p := range places {
			if slices.Contains(strings.Split(m[3], ", "), p.String()) {
				r.add(p, []pyverbs.Result{{Module: m[1], Name: m[2], Outcome: pyverbs.Skip,
					Why: strings.ReplaceAll(m[4], "\\|", "|")}})
			}
		}
	}
	return r, nil
}

// forget removes the results of modules at a place, or all results of the place
// if none are given.
func (r *report) forget(p place, modules []string) {
	for _, at := range r.outcomes {
		if v, ok := at[p]; ok && (len(modules) == 0 || slices.Contains(modules, v.Module)) {
			delete(at, p)
		}
	}
}
