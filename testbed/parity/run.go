package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

//go:embed runner.py
var runner string

const (
	pyverbsTests = "/usr/share/doc/rdma-core/tests"
	limit        = 10 * time.Minute // of all tests in C, or of a package in Go
)

// pyverbsArgs name the device, and the GID of its IPv4 address.
var pyverbsArgs = []string{"--dev", "rxe0", "--gid", "1"}

// build compiles the Go tests of all suites for a guest. The binaries are by
// package.
func build(ctx context.Context, root, dir string) (map[string]string, error) {
	binaries := make(map[string]string)
	for _, s := range suites {
		if binaries[s.pkg] != "" {
			continue
		}
		file := filepath.Join(dir, filepath.Base(s.pkg)+".test")
		c := exec.CommandContext(ctx, "go", "test", "-c", "-buildvcs=false", "-tags=device", "-o", file, "./"+s.pkg)
		c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", c, err, out)
		}
		binaries[s.pkg] = file
	}
	return binaries, nil
}

// inspect finds the version of rdma-core in the guests' root, and the modules
// that its tests have.
func (r *report) inspect(b *bed.Bed) (modules []string, err error) {
	tree, err := b.Tree(bed.Root)
	if err != nil {
		return nil, err
	}
	if r.library, err = libraryVersion(tree); err != nil {
		return nil, err
	}
	return modulesIn(filepath.Join(tree, pyverbsTests))
}

// libraryVersion is rdma-core's version, by the name of its library.
func libraryVersion(tree string) (string, error) {
	name, err := os.Readlink(filepath.Join(tree, "usr/lib/x86_64-linux-gnu/librdmacm.so.1"))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`^librdmacm\.so\.1\.\d+\.(\d+\.\d+)$`).FindStringSubmatch(name)
	if m == nil {
		return "", fmt.Errorf("%s does not tell rdma-core's version", name)
	}
	return m[1], nil
}

// measure runs modules in a guest: first C's, then the Go tests.
func (r *report) measure(ctx context.Context, g *vm.Guest, kernel string, modules []string, binaries map[string]string, said io.Writer) error {
	r.releases[kernel] = g.Release()
	installed := make(map[string]string)
	for pkg, file := range binaries {
		path, err := g.Install(file)
		if err != nil {
			return err
		}
		installed[pkg] = path
	}
	if err := r.python(ctx, g, kernel, modules, said); err != nil {
		return fmt.Errorf("kernel %s, C: %w", kernel, err)
	}
	for pkg, path := range installed {
		if err := r.golang(ctx, g, kernel, pkg, path, said); err != nil {
			return fmt.Errorf("kernel %s, package %s: %w", kernel, pkg, err)
		}
	}
	bad, err := g.Complaints(ctx)
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("kernel %s complained: %s", kernel, strings.Join(bad, "; "))
	}
	return err
}

// python runs the tests of the modules.
func (r *report) python(ctx context.Context, g *vm.Guest, kernel string, modules []string, said io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := g.CommandContext(ctx, "python3", append([]string{"-", pyverbsTests, strings.Join(modules, ",")}, pyverbsArgs...)...)
	c.Stdin = strings.NewReader(runner)
	out, err := c.CombinedOutput()
	return errors.Join(err, r.readPython(out, kernel, said))
}

// readPython reads what runner.py prints.
func (r *report) readPython(out []byte, kernel string, said io.Writer) error {
	ended := false
	for line := range strings.Lines(string(out)) {
		text, ok := strings.CutPrefix(line, "parity: ")
		if !ok {
			continue
		}
		if text == "end\n" {
			ended = true
			continue
		}
		var v struct {
			Module, Name, Why string
			Outcome           outcome
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return fmt.Errorf("the Python program says %q: %w", line, err)
		}
		r.suite(v.Module).test(v.Name).inC[kernel] = v.Outcome
		if v.Outcome != pass {
			fmt.Fprintf(said, "kernel %s, C, %s.%s: %s: %s\n", kernel, v.Module, v.Name, v.Outcome, v.Why)
		}
	}
	if !ended {
		return fmt.Errorf("the Python tests did not end:\n%s", out)
	}
	return nil
}

// golang runs the tests of the same names that a package has.
func (r *report) golang(ctx context.Context, g *vm.Guest, kernel, pkg, binary string, said io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit+30*time.Second)
	defer cancel()
	var tests []string
	for _, s := range suites {
		if s.pkg == pkg {
			tests = append(tests, s.goTest)
		}
	}
	c := g.CommandContext(ctx, binary, "-test.v", "-test.run=^("+strings.Join(tests, "|")+")$", "-test.timeout="+limit.String())
	out, err := c.CombinedOutput()
	var exit *vm.ExitError
	if failed := errors.As(err, &exit); err != nil && !failed {
		return err
	}
	r.readGo(out, kernel)
	if err != nil {
		fmt.Fprintf(said, "kernel %s, Go:\n%s", kernel, out)
	}
	if !bytes.Contains(out, []byte("\nPASS\n")) && !bytes.Contains(out, []byte("\nFAIL\n")) {
		return fmt.Errorf("the Go tests did not end:\n%s", out)
	}
	return nil
}

var goLine = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\w+)/(\w+) \(`)

// readGo reads what a test binary prints.
func (r *report) readGo(out []byte, kernel string) {
	for _, m := range goLine.FindAllSubmatch(out, -1) {
		for _, s := range suites {
			if string(m[2]) == s.goTest {
				r.suite(s.module).test(string(m[3])).inGo[kernel] = outcome(strings.ToLower(string(m[1])))
			}
		}
	}
}
