package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const head = `# Parity with rdma-core's tests

<!-- Written by "go run ./testbed/parity -write". Do not edit. -->

rdma-core tests its C libraries by Python programs (pyverbs), which Debian ships in /usr/share/doc/rdma-core/tests. The
tables have what came of these tests on each kernel of the test bed, with the C libraries, and what came of the Go tests of the
same names, with this library, in the same guest. Device: rxe. Each Python test has a process of its own. A skip is the
test's own verdict on kernel or device. "none" says that there is no such test.

`

// render is the page.
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

// totals writes how many tests pass.
func (r *report) totals(b *strings.Builder) {
	b.WriteString("\n## What passes\n\n")
	titles(b, "module", "C", "Go")
	for _, s := range r.results {
		if s.listed() {
			row(b, "["+s.module+"](#"+s.module+")", counts(s.passed))
		}
	}
	row(b, "all", counts(r.passed))
}

// rest writes what came of the modules of which nothing passes.
func (r *report) rest(b *strings.Builder) {
	b.WriteString("\n## The other modules\n\nOf these no test passes with C on rxe, so there is none in Go.\n\n")
	titles(b, "module", "C")
	for _, s := range r.results {
		if !s.listed() {
			var cells []string
			for _, k := range kernels {
				cells = append(cells, s.counted(k))
			}
			row(b, s.module, cells)
		}
	}
}

// counts are the counts of passed in the order of the columns.
func counts(passed func(kernel string) (c, golang int)) []string {
	cells := make([]string, 2*len(kernels))
	for i, k := range kernels {
		c, golang := passed(k)
		cells[i], cells[len(kernels)+i] = strconv.Itoa(c), strconv.Itoa(golang)
	}
	return cells
}

func row(b *strings.Builder, name string, cells []string) {
	fmt.Fprintf(b, "| %s | %s |\n", name, strings.Join(cells, " | "))
}

func titles(b *strings.Builder, first string, libraries ...string) {
	var names, rule []string
	for _, lib := range libraries {
		for _, k := range kernels {
			names = append(names, lib+", "+k)
			rule = append(rule, "---")
		}
	}
	row(b, first, names)
	row(b, "---", rule)
}

// table writes the outcomes of a suite.
func (r *result) table(b *strings.Builder) {
	titles(b, "test", "C", "Go")
	for _, c := range r.cases {
		row(b, "`"+c.name+"`", c.cells())
	}
	row(b, "passed", counts(r.passed))
}

// cells are the outcomes, in the order of the columns.
func (c *testCase) cells() (cells []string) {
	for _, m := range []map[string]outcome{c.inC, c.inGo} {
		for _, k := range kernels {
			cells = append(cells, string(on(m, k)))
		}
	}
	return cells
}

var (
	libraryLine = regexp.MustCompile(`^- rdma-core (\S+)$`)
	kernelLine  = regexp.MustCompile(`^- Linux (\S+): (\S+)$`)
	suiteLine   = regexp.MustCompile(`^## (test_\w+)$`)
	restLine    = regexp.MustCompile(`^\| (test_\w+) \| (.*) \|$`)
	caseLine    = regexp.MustCompile("^\\| `(\\w+)` \\| (.*) \\|$")
)

// parse reads a page.
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
			cells := strings.Split(m[2], " | ")
			if len(cells) != len(kernels) {
				return nil, fmt.Errorf("a row that cannot be read: %s", line)
			}
			for i, k := range kernels {
				r.suite(m[1]).brief[k] = cells[i]
			}
		} else if m := caseLine.FindStringSubmatch(line); m != nil {
			cells := strings.Split(m[2], " | ")
			if now == nil || len(cells) != 2*len(kernels) {
				return nil, fmt.Errorf("a row that cannot be read: %s", line)
			}
			c := now.test(m[1])
			for i, k := range kernels {
				c.inC[k], c.inGo[k] = outcome(cells[i]), outcome(cells[len(kernels)+i])
			}
		}
	}
	return r, nil
}
