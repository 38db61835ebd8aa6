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
	limit        = 5 * time.Minute // of one suite, in C or in Go
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

// libraryVersion is rdma-core's version in the guests' root, by the name of its
// library.
func libraryVersion(b *bed.Bed) (string, error) {
	tree, err := b.Tree(bed.Root)
	if err != nil {
		return "", err
	}
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

// measure runs all suites in a guest.
func (r *report) measure(ctx context.Context, g *vm.Guest, kernel string, binaries map[string]string, said io.Writer) error {
	r.releases[kernel] = g.Release()
	installed := make(map[string]string)
	for pkg, file := range binaries {
		path, err := g.Install(file)
		if err != nil {
			return err
		}
		installed[pkg] = path
	}
	for _, s := range r.results {
		if err := s.python(ctx, g, kernel, said); err != nil {
			return fmt.Errorf("kernel %s, %s: %w", kernel, s.module, err)
		}
		if err := s.golang(ctx, g, kernel, installed[s.pkg], said); err != nil {
			return fmt.Errorf("kernel %s, %s: %w", kernel, s.goTest, err)
		}
	}
	bad, err := g.Complaints(ctx)
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("kernel %s complained: %s", kernel, strings.Join(bad, "; "))
	}
	return err
}

// python runs the module's tests.
func (r *result) python(ctx context.Context, g *vm.Guest, kernel string, said io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := g.CommandContext(ctx, "python3", append([]string{"-", pyverbsTests, r.module}, pyverbsArgs...)...)
	c.Stdin = strings.NewReader(runner)
	out, err := c.CombinedOutput()
	return errors.Join(err, r.readPython(out, kernel, said))
}

// readPython reads what runner.py prints.
func (r *result) readPython(out []byte, kernel string, said io.Writer) error {
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
			Name, Why string
			Outcome   outcome
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return fmt.Errorf("the Python program says %q: %w", line, err)
		}
		r.test(v.Name).inC[kernel] = v.Outcome
		if v.Outcome != pass {
			fmt.Fprintf(said, "kernel %s, C, %s: %s: %s\n", kernel, v.Name, v.Outcome, v.Why)
		}
	}
	if !ended {
		return fmt.Errorf("the Python tests did not end:\n%s", out)
	}
	return nil
}

// golang runs the tests of the same names.
func (r *result) golang(ctx context.Context, g *vm.Guest, kernel, binary string, said io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit+30*time.Second)
	defer cancel()
	c := g.CommandContext(ctx, binary, "-test.v", "-test.run=^"+r.goTest+"$", "-test.timeout="+limit.String())
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
func (r *result) readGo(out []byte, kernel string) {
	for _, m := range goLine.FindAllSubmatch(out, -1) {
		if string(m[2]) == r.goTest {
			r.test(string(m[3])).inGo[kernel] = outcome(strings.ToLower(string(m[1])))
		}
	}
}
