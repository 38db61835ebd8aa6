package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
)

// limit is the time limit of all tests in C, or of those of one package in Go.
const limit = 15 * time.Minute

// build compiles the Go tests of all suites for a guest. It returns the binaries by
// package.
func build(ctx context.Context, root, dir string) (map[string]string, error) {
	binaries := make(map[string]string)
	for _, s := range suites {
		if binaries[s.pkg] != "" {
			continue
		}
		file := filepath.Join(dir, strings.ReplaceAll(s.pkg, "/", "-")+".test")
		c := exec.CommandContext(ctx, "go", "test", "-c", "-buildvcs=false", "-tags=device", "-o", file, "./"+s.pkg)
		c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", c, err, out)
		}
		binaries[s.pkg] = file
	}
	return binaries, nil
}

// measure runs the Python tests of modules in a guest, then the Go tests of x.
func (r *report) measure(ctx context.Context, g *vm.Guest, p place, modules []string, x extent,
	binaries map[string]string, said io.Writer) error {
	r.releases[p.kernel] = g.Release()
	installed := make(map[string]string)
	for pkg, file := range binaries {
		if len(x.tests(pkg)) == 0 {
			continue
		}
		path, err := g.Install(file)
		if err != nil {
			return err
		}
		installed[pkg] = path
	}
	if len(modules) > 0 {
		if err := r.python(ctx, g, p, modules, said); err != nil {
			return fmt.Errorf("%v, C: %w", p, err)
		}
	}
	for pkg, path := range installed {
		if err := r.golang(ctx, g, p, path, x.tests(pkg), said); err != nil {
			return fmt.Errorf("%v, package %s: %w", p, pkg, err)
		}
	}
	bad, err := g.Complaints(ctx)
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("%v: the kernel complained: %s", p, strings.Join(bad, "; "))
	}
	return err
}

// python runs the Python tests of modules.
func (r *report) python(ctx context.Context, g *vm.Guest, p place, modules []string, said io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	results, err := pyverbs.Run(ctx, g, modules, p.pyverbsArgs()...)
	r.readPython(results, p, said)
	return err
}

// readPython adds the results of Python tests.
func (r *report) readPython(results []pyverbs.Result, p place, said io.Writer) {
	for _, v := range results {
		r.suite(v.Module).test(v.Name).inC[p] = v.Outcome
		if v.Outcome != pass {
			fmt.Fprintf(said, "%v, C, %s.%s: %s: %s\n", p, v.Module, v.Name, v.Outcome, v.Why)
		}
	}
}

// tests returns the Go tests of a package that run.
func (x extent) tests(pkg string) (tests []string) {
	for _, s := range suites {
		if s.pkg == pkg && x.has(s.module) {
			tests = append(tests, s.goTest)
		}
	}
	return tests
}

// golang runs Go tests of a package.
func (r *report) golang(ctx context.Context, g *vm.Guest, p place, binary string, tests []string,
	said io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit+30*time.Second)
	defer cancel()
	c := g.CommandContext(ctx, binary, "-test.v", "-test.run=^("+strings.Join(tests, "|")+")$",
		"-test.timeout="+limit.String())
	c.Env = []string{"GOVERBS_DEVICE=" + p.name()}
	out, err := c.CombinedOutput()
	var exit *vm.ExitError
	if failed := errors.As(err, &exit); err != nil && !failed {
		return err
	}
	r.readGo(out, p)
	if err != nil {
		fmt.Fprintf(said, "%v, Go:\n%s", p, out)
	}
	if !bytes.Contains(out, []byte("\nPASS\n")) && !bytes.Contains(out, []byte("\nFAIL\n")) {
		return fmt.Errorf("the Go tests did not end:\n%s", out)
	}
	return nil
}

var goLine = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\w+)/(\w+) \(`)

// readGo parses the output of a test binary.
func (r *report) readGo(out []byte, p place) {
	for _, m := range goLine.FindAllSubmatch(out, -1) {
		for _, s := range suites {
			if string(m[2]) == s.goTest {
				r.suite(s.module).test(string(m[3])).inGo[p] = outcome(strings.ToLower(string(m[1])))
			}
		}
	}
}
