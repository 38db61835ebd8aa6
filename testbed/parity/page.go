package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const head = `# Parity with rdma-core's tests

<!-- Written by "go run ./testbed/parity -write". Do not edit. -->

rdma-core tests its C libraries by Python programs (pyverbs), which Debian ships in /usr/share/doc/rdma-core/tests. The
tables have what came of these tests on each kernel of the test bed, with the C libraries, and what came of the Go tests of the
same names, with this library, in the same guest. Device: rxe. A skip is the test's own verdict on kernel or device.

`

// render is the page.
func (r *report) render() string {
	var b strings.Builder
	b.WriteString(head)
	fmt.Fprintf(&b, "- rdma-core %s\n", r.library)
	for _, k := range kernels {
		fmt.Fprintf(&b, "- Linux %s: %s\n", k, r.releases[k])
	}
	for _, s := range r.results {
		fmt.Fprintf(&b, "\n## %s\n\nIn Go: the subtests of `%s` in package %s.\n%s\n\n", s.module, s.goTest, s.pkg, s.notes)
		s.table(&b)
	}
	return b.String()
}

// table writes the outcomes of a suite.
func (r *result) table(b *strings.Builder) {
	row := func(name string, cells []string) { fmt.Fprintf(b, "| %s | %s |\n", name, strings.Join(cells, " | ")) }
	var titles, rule, passed []string
	for _, lib := range []string{"C", "Go"} {
		for _, k := range kernels {
			titles = append(titles, lib+", "+k)
			rule = append(rule, "---")
		}
	}
	row("test", titles)
	row("---", rule)
	count := make([]int, len(titles))
	for _, c := range r.cases {
		cells := c.cells()
		for i, o := range cells {
			if o == string(pass) {
				count[i]++
			}
		}
		row("`"+c.name+"`", cells)
	}
	for _, n := range count {
		passed = append(passed, fmt.Sprintf("%d of %d", n, len(r.cases)))
	}
	row("passed", passed)
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
	suiteLine   = regexp.MustCompile(`^## (\S+)$`)
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
			i := slices.IndexFunc(r.results, func(s *result) bool { return s.module == m[1] })
			if i < 0 {
				return nil, fmt.Errorf("the page has %s, which this program does not know", m[1])
			}
			now = r.results[i]
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
