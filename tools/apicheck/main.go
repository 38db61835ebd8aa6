// Apicheck compares the API of the packages for programs with that of the last
// release, the highest tag v* that the current commit contains. It reports each
// change, and fails if one is incompatible and not in the file of accepted changes:
//
//	apicheck DIR tools/apicheck/accepted.txt
//
// Without a release there is nothing to compare.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// unstable lists the folders whose packages may change at any time.
var unstable = []string{"bench", "cmd", "examples", "internal"}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "apicheck:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: apicheck DIR ACCEPTED")
	}
	dir, file := args[0], args[1]
	accepted, err := lines(file)
	if err != nil {
		return err
	}
	tag, err := lastRelease(dir)
	if err != nil {
		return err
	}
	if tag == "" {
		fmt.Fprintln(out, "no release to compare the API with: there is no tag v*")
		return nil
	}
	before, err := checkout(dir, tag)
	if err != nil {
		return err
	}
	was, err := load(before)
	if err != nil {
		return fmt.Errorf("%s: %w", tag, err)
	}
	is, err := load(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "changes of the API since %s:\n", tag)
	return compare(out, apidiff.ModuleChanges(was, is), accepted, file)
}

// compare prints the changes, and returns an error if they and the accepted ones
// differ.
func compare(out io.Writer, report apidiff.Report, accepted []string, file string) error {
	var errs []error
	for _, c := range report.Changes {
		i := slices.Index(accepted, c.Message)
		switch {
		case c.Compatible:
			fmt.Fprintf(out, "  compatible: %s\n", c.Message)
		case i >= 0:
			fmt.Fprintf(out, "  accepted: %s\n", c.Message)
			accepted = slices.Delete(accepted, i, i+1)
		default:
			fmt.Fprintf(out, "  INCOMPATIBLE: %s\n", c.Message)
			errs = append(errs, fmt.Errorf("incompatible: %s", c.Message))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, fmt.Errorf(
			"keep the old API, or add the lines to %s and describe the changes in CHANGELOG.md", file))
	}
	for _, line := range accepted {
		errs = append(errs, fmt.Errorf("%s: there is no change %q: remove the line", file, line))
	}
	return errors.Join(errs...)
}

// lines returns the lines of a file without empty ones and comments, which begin
// with #.
func lines(file string) (all []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all, nil
}

// lastRelease returns the tag of the last release that the current commit contains,
// or "" if there is none.
func lastRelease(dir string) (tag string, err error) {
	tags, err := git(dir, "tag", "--list", "v*", "--merged", "HEAD")
	if err != nil {
		return "", err
	}
	for _, t := range strings.Fields(string(tags)) {
		if semver.IsValid(t) && semver.Prerelease(t) == "" && (tag == "" || semver.Compare(t, tag) > 0) {
			tag = t
		}
	}
	return tag, nil
}

// checkout unpacks the files of a tag, and returns their folder. It is the same in
// each run, so that the go command finds what it has built.
func checkout(dir, tag string) (string, error) {
	to, err := filepath.Abs(filepath.Join(dir, "bin", "api", tag))
	if err != nil {
		return "", err
	}
	archive, err := git(dir, "archive", "--format=tar", tag)
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return "", err
	}
	tar := exec.Command("tar", "-x", "-C", to)
	tar.Stdin = bytes.NewReader(archive)
	if text, err := tar.CombinedOutput(); err != nil {
		return "", fmt.Errorf("tar: %w: %s", err, text)
	}
	return to, nil
}

func git(dir string, args ...string) ([]byte, error) {
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return out, nil
}

// load returns the packages of a module that programs import.
func load(dir string) (*apidiff.Module, error) {
	all, err := list(dir, packages.NeedName|packages.NeedModule, "./...")
	if err != nil {
		return nil, err
	}
	m := &apidiff.Module{}
	var names []string
	for _, p := range all {
		m.Path = p.Module.Path
		if p.Name != "main" && stable(strings.TrimPrefix(p.PkgPath, m.Path)) {
			names = append(names, p.PkgPath)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no packages for programs", dir)
	}
	slices.Sort(names)
	if all, err = list(dir, packages.NeedName|packages.NeedTypes|packages.NeedImports, names...); err != nil {
		return nil, err
	}
	for _, p := range all {
		m.Packages = append(m.Packages, p.Types)
	}
	return m, nil
}

// list returns packages of a module.
func list(dir string, mode packages.LoadMode, patterns ...string) ([]*packages.Package, error) {
	c := &packages.Config{Dir: dir, Env: append(os.Environ(), "GOWORK=off"), Mode: mode}
	all, err := packages.Load(c, patterns...)
	for _, p := range all {
		for _, e := range p.Errors {
			err = errors.Join(err, e)
		}
	}
	return all, err
}

// stable reports whether the package in a folder of the module is for programs.
func stable(folder string) bool {
	parts := strings.Split(strings.TrimPrefix(folder, "/"), "/")
	return !slices.Contains(unstable, parts[0]) && !slices.Contains(parts, "internal")
}
