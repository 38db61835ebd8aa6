package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// Start boots a guest for the duration of the test, after setting up missing
// parts of the bed. The test fails if the guest does not power off normally,
// unless the test itself has called Close.
//
// If c does not set a number of CPUs, the guest has one, and two with [EnvTest]=all. On one CPU the same tests cost
// about half of the host's time: emulated CPUs that look for work, and interrupt each other, are expensive. Tests of
// concurrency set the number.
func Start(t testing.TB, c Config) *Guest {
	t.Helper()
	if c.CPUs == 0 && os.Getenv(EnvTest) != "all" {
		c.CPUs = 1
	}
	b, err := c.bed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	g, err := Boot(t.Context(), b, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kernel %s booted in %.1f s", g.Release(), time.Since(started).Seconds())
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("closing the guest: %v", err)
		}
	})
	return g
}

// bed opens the bed with the parts for the guest.
func (c Config) bed(ctx context.Context) (*bed.Bed, error) {
	parts, err := c.Parts()
	if err != nil {
		return nil, err
	}
	return bed.Ensure(ctx, os.Stderr, parts...)
}

// BuildTest compiles the tests of a package (an import path, or a directory, also one of another module that begins
// with a period) to a static binary for a guest, and returns its file. Tags are
// build tags, comma-separated; arch is the guest's ("" is amd64).
func BuildTest(t testing.TB, pkg, tags, arch string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(pkg)+".test")
	dir, pkg := place(pkg)
	build(t, arch, dir, "test", "-c", "-tags="+tags, "-o", file, pkg)
	return file
}

// BuildProgram compiles a main package as BuildTest compiles a test.
func BuildProgram(t testing.TB, pkg, tags, arch string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(pkg))
	dir, pkg := place(pkg)
	build(t, arch, dir, "build", "-tags="+tags, "-o", file, pkg)
	return file
}

// BuildPrograms compiles main packages with one command to files in dir, each with the last element of its package's
// path as its name.
func BuildPrograms(t testing.TB, dir, arch string, pkgs ...string) {
	t.Helper()
	build(t, arch, "", append([]string{"build", "-o", dir + string(filepath.Separator)}, pkgs...)...)
}

// place returns where the go command finds a package, and the package's name there.
func place(pkg string) (dir, name string) {
	if strings.HasPrefix(pkg, ".") {
		return pkg, "."
	}
	return "", pkg
}

func build(t testing.TB, arch, dir string, args ...string) {
	t.Helper()
	if arch == "" {
		arch = "amd64"
	}
	// Guests read smaller files sooner. Stack traces need no symbols.
	flags := []string{args[0], "-ldflags=-s -w"}
	if arch != runtime.GOARCH {
		flags = append(flags, "-trimpath") // as the other builds for arm64 (Makefile), whose packages are in the cache
	}
	args = append(flags, args[1:]...)
	if err := goBuild(t.Context(), arch, dir, args...); err != nil {
		t.Fatal(fmt.Errorf("building for the guest: %w", err))
	}
}
