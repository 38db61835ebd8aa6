package verbstest

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Main runs the tests and the examples of a package, for its TestMain, and returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(verbstest.Main(m)) }
//
// Go test passes no testing.T to examples. With Main, they run on a machine with the address 192.0.2.1. If they break
// a [Rule], or RDMA objects remain after the last of them, Main prints a report to standard error and returns 1. It
// does not report goroutines.
//
// Tests create their own machines. The goroutines of a test that has one are on that machine or on none. Those of a
// test without one are on the machine of the examples.
func Main(m *testing.M) int { return onMachine(m.Run, os.Stderr) }

// onMachine calls run while there is a machine. The calling goroutine is not put on it: goroutines that tests start
// outside of Machine.Run would be on it too.
func onMachine(run func() int, report io.Writer) (code int) {
	t := runTest(func(t testing.TB) {
		NewNetwork(t).Machine()
		code = run()
	})
	if fmt.Fprint(report, t.log.String()); t.failed && code == 0 {
		return 1
	}
	return code
}

// A test has the methods of a testing.T that this package and its examples call. Others panic.
type test struct {
	testing.TB
	ctx      context.Context
	mu       sync.Mutex
	log      strings.Builder
	failed   bool
	cleanups []func()
}

// runTest calls f, then its cleanups, each in a goroutine that FailNow may end.
func runTest(f func(t testing.TB)) *test {
	ctx, cancel := context.WithCancel(context.Background())
	t := &test{ctx: ctx}
	t.call(func() { f(t) })
	cancel()
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		f := t.cleanups[last]
		t.cleanups = slices.Delete(t.cleanups, last, last+1)
		t.call(f)
	}
	return t
}

func (t *test) call(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (t *test) Helper()                  {}
func (t *test) Name() string             { return "Example" }
func (t *test) Context() context.Context { return t.ctx }
func (t *test) Cleanup(f func())         { t.cleanups = append(t.cleanups, f) }

func (t *test) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

func (t *test) Fail() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = true
}

func (t *test) FailNow() {
	t.Fail()
	runtime.Goexit()
}

func (t *test) Log(args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(&t.log, args...)
}

func (t *test) Logf(format string, args ...any) {
	t.Log(strings.TrimSuffix(fmt.Sprintf(format, args...), "\n"))
}

func (t *test) Error(args ...any) {
	t.Log(args...)
	t.Fail()
}

func (t *test) Errorf(format string, args ...any) {
	t.Logf(format, args...)
	t.Fail()
}

func (t *test) Fatal(args ...any) {
	t.Log(args...)
	t.FailNow()
}

func (t *test) Fatalf(format string, args ...any) {
	t.Logf(format, args...)
	t.FailNow()
}
