// Package leaktest runs a package's tests and fails them when something was
// not given back: an entry of the leak account, which kernel objects, rings,
// registered memory and open nodes have, a descriptor or a goroutine.
package leaktest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/leak"
)

// exitLeaked tells a leak from a failed test.
const exitLeaked = 99

// Main is a TestMain: it runs the tests with the account open and exits. The
// code is 99 when the tests pass and leave something behind.
func Main(m *testing.M) {
	leak.Enable()
	before := descriptors()
	code := m.Run()
	if report := check(before); report != "" {
		fmt.Fprint(os.Stderr, report)
		if code == 0 {
			code = exitLeaked
		}
	}
	os.Exit(code)
}

func check(before map[string]string) string {
	stacks := strays() // first: what ends may yet give something back
	var b strings.Builder
	for _, t := range leak.Live() {
		fmt.Fprintf(&b, "leak: %v\n", t)
	}
	for _, d := range added(before, descriptors()) {
		fmt.Fprintf(&b, "leak: descriptor %s\n", d)
	}
	if stacks != "" {
		fmt.Fprintf(&b, "leak: goroutines\n%s\n", stacks)
	}
	return b.String()
}

// added describes the descriptors that were not open before.
func added(before, after map[string]string) (all []string) {
	// The runtime opens its poller on first use and keeps it: one of each.
	poller := map[string]int{"anon_inode:[eventpoll]": 1, "anon_inode:[eventfd]": 1}
	for _, what := range before {
		poller[what]--
	}
	for fd, what := range after {
		if before[fd] == what {
			continue
		}
		if poller[what] > 0 {
			poller[what]--
			continue
		}
		all = append(all, fd+" of "+what)
	}
	slices.Sort(all)
	return all
}

// descriptors lists the process's open files by number.
func descriptors() map[string]string {
	open := make(map[string]string)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return open
	}
	for _, e := range entries {
		// The directory's own descriptor is gone by now.
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
			open[e.Name()] = to
		}
	}
	return open
}

// patience is how long a goroutine may take to end.
const patience = 2 * time.Second

// strays returns the stacks of goroutines that this module started and that do
// not end.
func strays() string {
	deadline := time.Now().Add(patience)
	for {
		var left []string
		for _, g := range goroutines() {
			if strings.Contains(g, "github.com/goverbs/goverbs/") && !strings.Contains(g, "leaktest.Main") {
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
		runtime.Gosched()
	}
}

func goroutines() []string {
	buf := make([]byte, 1<<20)
	return strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
}
