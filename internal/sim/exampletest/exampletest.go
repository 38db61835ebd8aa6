// Package exampletest lets examples run in memory: go test passes no testing.T to an example, which package verbstest
// needs.
package exampletest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// OnMachine returns m, a *testing.M, for a TestMain: examples run on a machine in memory with the address 192.0.2.1.
// The goroutines of tests are not put on it: while a test has a machine, they are on that one or on none.
func OnMachine(m interface{ Run() int }) interface{ Run() int } { return onMachine{m} }

type onMachine struct{ m interface{ Run() int } }

func (o onMachine) Run() (code int) {
	t := run(func(t testing.TB) {
		verbstest.NewNetwork(t).Machine()
		code = o.m.Run()
	})
	if fmt.Fprint(os.Stderr, t.log.String()); t.failed && code == 0 {
		return 1
	}
	return code
}

// Test calls a function as go test calls a test, and prints what it has logged and its result.
func Test(f func(t testing.TB)) {
	t := run(f)
	fmt.Print(t.log.String())
	if t.failed {
		fmt.Println("FAIL")
	} else {
		fmt.Println("PASS")
	}
}

// A test has the methods of a testing.T that package verbstest calls. Others panic.
type test struct {
	testing.TB
	ctx      context.Context
	mu       sync.Mutex
	log      strings.Builder
	failed   bool
	cleanups []func()
}

// run calls f, then its cleanups, each in a goroutine that FailNow may end.
func run(f func(t testing.TB)) *test {
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
