// Package leaktest runs a package's tests and fails them when something was
// not given back: an entry of the leak account, a descriptor or a goroutine.
package leaktest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/leak"
)

// exitLeaked tells a leak from a failed test.
const exitLeaked = 99

// Main is a TestMain: it runs the tests with the account open and exits.
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
	var b strings.Builder
	for _, t := range leak.Live() {
		fmt.Fprintf(&b, "leak: %v\n", t)
	}
	for fd, what := range descriptors() {
		// The runtime opens its poller on first use and keeps it.
		poller := strings.Contains(what, "eventpoll") || strings.Contains(what, "eventfd")
		if before[fd] != what && !poller {
			fmt.Fprintf(&b, "leak: descriptor %s of %s\n", fd, what)
		}
	}
	if stacks := strays(); stacks != "" {
		fmt.Fprintf(&b, "leak: goroutines\n%s\n", stacks)
	}
	return b.String()
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

// strays returns the stacks of goroutines that this module started and that do
// not end: each gets a moment to.
func strays() string {
	deadline := time.Now().Add(2 * time.Second)
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
