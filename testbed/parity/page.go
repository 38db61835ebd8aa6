package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const head = `# Parity with rdma-core's tests

<!-- Written by "go run -C testbed ./parity -write". Do not edit. -->

rdma-core tests its C libraries with Python programs (pyverbs), which Debian ships in /usr/share/doc/rdma-core/tests.
The tables have the results of these tests with the C libraries, and of the Go tests of the same names with this
library, in guests of the same kind. The devices are rxe and the [software ConnectX](../soft-connectx.md) (mlx5), in
RoCE mode and on InfiniBand, on each kernel of the test bed: 6.1, 6.12 and 7.2. The entries of a cell are of these
kernels in this order; a single entry is of all. Each Python test has a separate process. A skip is the test's own
verdict on kernel or device. "none" means that there is no such test.

`

// render returns the page.
func (r *report) render() string {
	var b strings.Builder
	b.WriteString(head)
	fmt.Fprintf(&b, "- rdma-core %s\n", r.library)
	for _, k := range kernels {
		fmt.Fprintf(&b, "- Linux %s: %s\n", k, r.releases[k])
	}
	r.totals(&b)
	for _, s := range r.results {
		if s.listed() {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", s.module, s.intro())
			s.table(&b)
		}
	}
	r.rest(&b)
	return b.String()
}

func (s suite) intro() string {
	if s.goTest == "" {
		return "There is no Go test."
	}
	return strings.TrimSpace("In Go: the subtests of `" + s.goTest + "` in package " + s.pkg + ".\n" + s.notes)
}

// totals writes the numbers of tests that pass.
func (r *report) totals(b *strings.Builder) {
	b.WriteString("\n## What passes\n\n")
	titles(b, "module")
	for _, s := range r.results {
		if s.listed() {
			row(b, "["+s.module+"](#"+s.module+")", counts(s.passed))
		}
	}
	row(b, "all", counts(r.passed))
}

// rest writes the results on rxe of the modules without Go tests.
func (r *report) rest(b *strings.Builder) {
	b.WriteString("\n## The other modules\n\nOf these no test passes with C on rxe. What passes on the ConnectX, which " +
		"[the page of its own](soft-connectx-pyverbs.md) has,\nis about what the last column says.\n\n" +
		"| module | C, rxe | why there is none in Go |\n| --- | --- | --- |\n")
	for _, s := range r.results {
		if !s.listed() {
			var cells []string
			for _, k := range kernels {
				cells = append(cells, s.counted(k))
			}
			row(b, s.module, []string{fold(cells), reason(s.module)})
		}
	}
}

// fold formats the values of all kernels as one cell: one value if all are equal.
func fold(cells []string) string {
	if len(slices.Compact(slices.Clone(cells))) == 1 {
		return cells[0]
	}
	return strings.Join(cells, ", ")
}

// unfold parses the result of fold.
func unfold(cell string) ([]string, error) {
	cells := strings.Split(cell, ", ")
	switch len(cells) {
	case 1:
		return slices.Repeat(cells, len(kernels)), nil
	case len(kernels):
		return cells, nil
	}
	return nil, fmt.Errorf("invalid cell: %q", cell)
}

// counts returns the results of passed in the order of the columns.
func counts(passed func(place) (c, golang int)) (cells []string) {
	for _, d := range devices {
		var inC, inGo []string
		for _, p := range on(d) {
			c, golang := passed(p)
			inC, inGo = append(inC, strconv.Itoa(c)), append(inGo, strconv.Itoa(golang))
		}
		cells = append(cells, fold(inC), fold(inGo))
	}
	return cells
}

func row(b *strings.Builder, name string, cells []string) {
	fmt.Fprintf(b, "| %s | %s |\n", name, strings.Join(cells, " | "))
}

func titles(b *strings.Builder, first string) {
	var names, rule []string
	for _, d := range devices {
		names = append(names, "C, "+d, "Go, "+d)
		rule = append(rule, "---", "---")
	}
	row(b, first, names)
	row(b, "---", rule)
}

// table writes the outcomes of a suite.
func (r *result) table(b *strings.Builder) {
	titles(b, "test")
	for _, c := range r.cases {
		row(b, "`"+c.name+"`", c.cells())
	}
	row(b, "passed", counts(r.passed))
}

// cells returns the outcomes, in the order of the columns.
func (c *testCase) cells() (cells []string) {
	for _, d := range devices {
		var inC, inGo []string
		for _, p := range on(d) {
			inC, inGo = append(inC, string(at(c.inC, p))), append(inGo, string(at(c.inGo, p)))
		}
		cells = append(cells, fold(inC), fold(inGo))
	}
	return cells
}

// enter sets the outcomes from cells.
func (c *testCase) enter(cells []string) error {
	if len(cells) != 2*len(devices) {
		return fmt.Errorf("%s has %d cells", c.name, len(cells))
	}
	for i, d := range devices {
		inC, err := unfold(cells[2*i])
		if err != nil {
			return err
		}
		inGo, err := unfold(cells[2*i+1])
		if err != nil {
			return err
		}
		for j, p := range on(d) {
			if o := outcome(inC[j]); o != none {
				c.inC[p] = o
			}
			if o := outcome(inGo[j]); o != none {
				c.inGo[p] = o
			}
		}
	}
	return nil
}

var (
	libraryLine = regexp.MustCompile(`^- rdma-core (\S+)$`)
	kernelLine  = regexp.MustCompile(`^- Linux (\S+): (\S+)$`)
	suiteLine   = regexp.MustCompile(`^## (test_\w+)$`)
	restLine    = regexp.MustCompile(`^\| (test_\w+) \| (.*) \| .* \|$`)
	caseLine    = regexp.MustCompile("^\\| `(\\w+)` \\| (.*) \\|$")
)

// parse parses a page.
func parse(text string) (*report, error) {
	r := newReport()
	var now *result
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := libraryLine.FindStringSubmatch(line); m != nil {
			r.library = m[1]
		} else if m := kernelLine.FindStringSubmatch(line); m != nil {
			r.releases[m[1]] = m[2]
		} else if m := suiteLine.FindStringSubmatch(line); m != nil {
			now = r.suite(m[1])
		} else if m := restLine.FindStringSubmatch(line); m != nil {
			cells, err := unfold(m[2])
			if err != nil {
				return nil, err
			}
			for i, k := range kernels {
				r.suite(m[1]).brief[k] = cells[i]
			}
		} else if m := caseLine.FindStringSubmatch(line); m != nil {
			if now == nil {
				return nil, fmt.Errorf("invalid row: %s", line)
			}
			if err := now.test(m[1]).enter(strings.Split(m[2], " | ")); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}
