// Package pyverbs runs rdma-core's own tests, which are written in Python, in a guest.
package pyverbs

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

//go:embed runner.py
var runner string

// Dir is the directory of the tests in the guest's root.
const Dir = "/usr/share/doc/rdma-core/tests"

// An Outcome is the outcome of a test.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip"
)

// A Result is the result of one test. Why is empty for a test that passed.
type Result struct {
	Module, Name string
	Outcome      Outcome
	Why          string
}

// Inspect returns the version of rdma-core in the guests' root and the modules of its
// tests.
func Inspect(b *bed.Bed) (version string, modules []string, err error) {
	tree, err := b.Tree(bed.Root)
	if err != nil {
		return "", nil, err
	}
	if version, err = libraryVersion(tree); err != nil {
		return "", nil, err
	}
	modules, err = modulesIn(filepath.Join(tree, Dir))
	return version, modules, err
}

// libraryVersion returns rdma-core's version, which is in the name of its library.
func libraryVersion(tree string) (string, error) {
	name, err := os.Readlink(filepath.Join(tree, "usr/lib/x86_64-linux-gnu/librdmacm.so.1"))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`^librdmacm\.so\.1\.\d+\.(\d+\.\d+)$`).FindStringSubmatch(name)
	if m == nil {
		return "", fmt.Errorf("the name %s does not contain rdma-core's version", name)
	}
	return m[1], nil
}

// modulesIn returns the test modules in a directory.
func modulesIn(dir string) (modules []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "test_*.py"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		modules = append(modules, strings.TrimSuffix(filepath.Base(file), ".py"))
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("no tests in %s", dir)
	}
	return modules, nil
}

// Run runs the tests of modules one after the other. Args select the device, such as
// "--dev", "rxe0", "--gid", "1". If Run fails, it returns the results so far.
func Run(ctx context.Context, g *vm.Guest, modules []string, args ...string) ([]Result, error) {
	c := g.CommandContext(ctx, "python3", Args(Dir, modules, args...)...)
	c.Stdin = strings.NewReader(runner)
	return results(c.CombinedOutput())
}

// RunOn is Run with a command of this machine that runs python3 with the arguments that Args returns.
func RunOn(c *exec.Cmd) ([]Result, error) {
	c.Stdin = strings.NewReader(runner)
	return results(c.CombinedOutput())
}

// Args returns the arguments of python3 that run the tests of modules, which are in a directory: Dir of a root.
func Args(dir string, modules []string, args ...string) []string {
	return append([]string{"-", dir, strings.Join(modules, ",")}, args...)
}

func results(out []byte, err error) ([]Result, error) {
	results, readErr := read(out)
	return results, errors.Join(err, readErr)
}

// read parses the output of runner.py.
func read(out []byte) (results []Result, err error) {
	for line := range bytes.Lines(out) {
		text, ok := bytes.CutPrefix(line, []byte("pyverbs: "))
		if !ok {
			continue
		}
		if string(text) == "end\n" {
			return results, nil
		}
		var r Result
		if err := json.Unmarshal(text, &r); err != nil {
			return results, fmt.Errorf("runner.py printed %q: %w", line, err)
		}
		results = append(results, r)
	}
	return results, fmt.Errorf("the Python tests did not end:\n%s", out)
}
