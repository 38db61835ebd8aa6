package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/testbed/pyverbs"
)

// A place is a combination of a kernel and a link layer.
type place struct{ kernel, link string }

// places are the columns of the page.
var places = []place{
	{"6.1", ib}, {"6.12", ib}, {"7.2", ib},
	{"6.1", roce}, {"6.12", roce}, {"7.2", roce},
}

// The link layers.
const (
	ib   = "ib"
	roce = "roce"
)

func (p place) String() string { return p.kernel + " " + p.link }

// A report has the results of the tests.
type report struct {
	library  string            // rdma-core's version
	releases map[string]string // of kernels
	outcomes map[string]map[place]pyverbs.Result
}

func newReport() *report {
	return &report{releases: make(map[string]string), outcomes: make(map[string]map[place]pyverbs.Result)}
}

// add adds the results of a run.
func (r *report) add(p place, results []pyverbs.Result) {
	for _, v := range results {
		name := v.Module + "." + v.Name
		if r.outcomes[name] == nil {
			r.outcomes[name] = make(map[place]pyverbs.Result)
		}
		v.Why, _, _ = strings.Cut(strings.TrimSpace(v.Why), "\n")
		r.outcomes[name][p] = v
	}
}

// names returns all tests, sorted.
func (r *report) names() (names []string) {
	for name := range r.outcomes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// count returns the number of a module's tests (of all, if module is "") with
// an outcome.
func (r *report) count(module string, p place, o pyverbs.Outcome) (n int) {
	for _, at := range r.outcomes {
		if v, ok := at[p]; ok && v.Outcome == o && (module == "" || v.Module == module) {
			n++
		}
	}
	return n
}

// cell returns the results of a module: "12", or "12, 3 skip".
func (r *report) cell(module string, p place) string {
	text := strconv.Itoa(r.count(module, p, pyverbs.Pass))
	for _, o := range []pyverbs.Outcome{pyverbs.Fail, pyverbs.Skip} {
		if n := r.count(module, p, o); n > 0 {
			text += fmt.Sprintf(", %d %s", n, o)
		}
	}
	return text
}

// summary returns a line for each place.
func (r *report) summary() string {
	var b strings.Builder
	for _, p := range places {
		if pass, skip, fail := r.count("", p, pyverbs.Pass), r.count("", p, pyverbs.Skip),
			r.count("", p, pyverbs.Fail); pass+skip+fail > 0 {
			fmt.Fprintf(&b, "kernel %s, link layer %s: %d passed, %d skipped, %d failed\n", p.kernel, p.link, pass, skip, fail)
		}
	}
	return b.String()
}

// failures returns an error for the failed tests.
func (r *report) failures() error {
	var errs []error
	for _, name := range r.names() {
		for _, p := range places {
			if v, ok := r.outcomes[name][p]; ok && v.Outcome == pyverbs.Fail {
				errs = append(errs, fmt.Errorf("kernel %s, link layer %s: %s failed: %s", p.kernel, p.link, name, v.Why))
			}
		}
	}
	return errors.Join(errs...)
}

const head = `# rdma-core's tests on the software ConnectX

<!-- Written by "go run -C testbed ./connectx/judge -write". Do not edit. -->

rdma-core tests its C libraries with Python programs (pyverbs), which Debian ships in /usr/share/doc/rdma-core/tests.
Here they run with C's libmlx5 and the kernel's mlx5_ib on the device of testbed/connectx: what they find wrong is wrong
with the device. Each test has a separate process. The number of a cell is how many tests of the module passed. With
Linux 6.1 the device has memory on demand for test_mlx5_dc only.

`

// render returns the page.
func (r *report) render() string {
	var b strings.Builder
	b.WriteString(head)
	fmt.Fprintf(&b, "- rdma-core %s\n", r.library)
	for _, k := range kernels() {
		fmt.Fprintf(&b, "- Linux %s: %s\n", k, r.releases[k])
	}
	b.WriteString("\n## What passes\n\n| module |")
	for _, p := range places {
		fmt.Fprintf(&b, " %v |", p)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(places)) + "\n")
	for _, module := range append(r.modules(), "") {
		title := module
		if module == "" {
			title = "all"
		}
		fmt.Fprintf(&b, "| %s |", title)
		for _, p := range places {
			fmt.Fprintf(&b, " %s |", r.cell(module, p))
		}
		b.WriteString("\n")
	}
	r.skips(&b)
	return b.String()
}

// modules returns the modules with a test that passes or fails at some place.
// The others are for devices of other vendors, or for features that this one
// does not have.
func (r *report) modules() (modules []string) {
	for _, at := range r.outcomes {
		for _, v := range at {
			if v.Outcome != pyverbs.Skip && !slices.Contains(modules, v.Module) {
				modules = append(modules, v.Module)
			}
		}
	}
	slices.Sort(modules)
	return modules
}

// skips writes the tests that do not run, with their reasons.
func (r *report) skips(b *strings.Builder) {
	b.WriteString("\n## What is not run\n\n")
	for _, name := range slices.Sorted(maps.Keys(leftOutTests)) {
		fmt.Fprintf(b, "- %s: %s\n", name, leftOutTests[name])
	}
	b.WriteString("\n## What is skipped\n\nA test that is skipped and not on this list fails `make test`.\n\n" +
		"| test | where | why |\n|---|---|---|\n")
	for _, name := range r.names() {
		why := make(map[string][]string)
		for _, p := range places {
			if v, ok := r.outcomes[name][p]; ok && v.Outcome == pyverbs.Skip {
				why[v.Why] = append(why[v.Why], p.String())
			}
		}
		reasons := make([]string, 0, len(why))
		for reason := range why {
			reasons = append(reasons, reason)
		}
		slices.Sort(reasons)
		for _, reason := range reasons {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, strings.Join(why[reason], ", "), strings.ReplaceAll(reason, "|", "\\|"))
		}
	}
}

func kernels() (kernels []string) {
	for _, p := range places {
		if !slices.Contains(kernels, p.kernel) {
			kernels = append(kernels, p.kernel)
		}
	}
	return kernels
}

var (
	skipRow = regexp.MustCompile("(?m)^\\| `(test_\\w+\\.test_\\w+)` \\| ([^|]*) \\|")
	allRow  = regexp.MustCompile(`(?m)^\| all \|(.*)\|$`)
)

// A record has the numbers of the page for a place.
type record struct {
	passed int
	skips  map[string]bool
}

// readPage parses the page for a place.
func readPage(page string, p place) (record, error) {
	rec := record{skips: make(map[string]bool)}
	m := allRow.FindStringSubmatch(page)
	if m == nil {
		return rec, errors.New("the page has no row of all modules")
	}
	cells := strings.Split(m[1], "|")
	i := slices.Index(places, p)
	if i < 0 || len(cells) != len(places) {
		return rec, fmt.Errorf("the page has no column %v", p)
	}
	number, _, _ := strings.Cut(strings.TrimSpace(cells[i]), ",")
	passed, err := strconv.Atoi(number)
	if err != nil {
		return rec, fmt.Errorf("the page's row of all modules: %w", err)
	}
	rec.passed = passed
	for _, m := range skipRow.FindAllStringSubmatch(page, -1) {
		if slices.Contains(strings.Split(m[2], ", "), p.String()) {
			rec.skips[m[1]] = true
		}
	}
	return rec, nil
}

// behind returns an error if the results are worse than on the page: a failure,
// a new skip, or fewer tests that pass.
func (r *report) behind(p place, rec record) error {
	errs := []error{r.failures()}
	for _, name := range r.names() {
		if v, ok := r.outcomes[name][p]; ok && v.Outcome == pyverbs.Skip && !rec.skips[name] {
			errs = append(errs, fmt.Errorf("kernel %s, link layer %s: %s is skipped, which it was not: %s", p.kernel, p.link,
				name, v.Why))
		}
	}
	if n := r.count("", p, pyverbs.Pass); n < rec.passed {
		errs = append(errs, fmt.Errorf("kernel %s, link layer %s: %d tests pass, %d did", p.kernel, p.link, n, rec.passed))
	}
	return errors.Join(errs...)
}
