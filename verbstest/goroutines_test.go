package verbstest_test

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// An ending is a test that ends when end is called. It keeps what is reported.
type ending struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (e *ending) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *ending) Errorf(format string, args ...any) {
	e.errors = append(e.errors, fmt.Sprintf(format, args...))
}

func (e *ending) end() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}

// TestGoroutineOfWaitGroup checks that a goroutine that a sync.WaitGroup has started is reported with
// the function of the program, and that the goroutine of package os/signal, which does not end, is not.
func TestGoroutineOfWaitGroup(t *testing.T) {
	t.Parallel()
	e := &ending{TB: t}
	var running sync.WaitGroup
	defer running.Wait()
	stop := make(chan struct{})
	defer close(stop)
	verbstest.NewNetwork(e).Machine().Run(func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt)
		signal.Stop(signals)
		running.Go(func() { <-stop })
	})
	e.end()
	if len(e.errors) != 1 || !strings.Contains(e.errors[0], "TestGoroutineOfWaitGroup.") ||
		!strings.Contains(e.errors[0], "at goroutines_test.go:") {
		t.Errorf("reported: %q", e.errors)
	}
}
