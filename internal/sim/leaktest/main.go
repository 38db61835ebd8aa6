// Package leaktest runs the tests of a package and fails them if they leak: a
// resource tracked by package leak, a file descriptor or a goroutine.
package leaktest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/sim/polltest"
)

// exitLeaked distinguishes a leak from a failed test.
const exitLeaked = 99

// Main is a TestMain, whose m is a *testing.M. It exits with the result of [Run].
func Main(m interface{ Run() int }) { os.Exit(Run(m.Run)) }

// Run calls a function that runs tests, with leak tracking on. It returns the function's result, or 99 if the tests
// pass but leak.
func Run(tests func() int) int {
	polltest.Force()
	leak.Enable()
	before := descriptors()
	code := tests()
	if report := check(before); report != "" {
		fmt.Fprint(os.Stderr, report)
		if code == 0 {
			code = exitLeaked
		}
	}
	return code
}

func check(before map[string]string) string {
	stacks := strays() // first, because a goroutine may release resources before it ends
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

// added describes the descriptors in after that are not in before.
func added(before, after map[string]string) (all []string) {
	// The runtime opens its poller on first use and never closes it: an epoll
	// descriptor and an eventfd.
	poller := map[string]int{"anon_inode:[eventpoll]": 1, "anon_inode:[eventfd]": 1}
	for _, file := range before {
		poller[file]--
	}
	for fd, file := range after {
		if before[fd] == file {
			continue
		}
		if poller[file] > 0 {
			poller[file]--
			continue
		}
		all = append(all, fd+" of "+file)
	}
	slices.Sort(all)
	return all
}

// descriptors returns the process's open files by descriptor number.
func descriptors() map[string]string {
	open := make(map[string]string)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return open
	}
	for _, e := range entries {
		// The descriptor of the directory itself is closed by now.
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
			open[e.Name()] = to
		}
	}
	return open
}

// goroutineTimeout is how long a goroutine may take to end.
const goroutineTimeout = 2 * time.Second

// strays returns the stacks of this module's goroutines that do not end within
// goroutineTimeout.
func strays() string {
	deadline := time.Now().Add(goroutineTimeout)
	for {
		var left []string
		for _, g := range goroutines() {
			if strings.Contains(g, "github.com/goverbs/goverbs/") && !strings.Contains(g, "leaktest.Run(") {
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
