package mistakes

import (
	"os"
	"os/signal"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// TestGoroutineOfWaitGroup checks that a goroutine that a sync.WaitGroup has started is reported with
// the function of the program, and that the goroutine of package os/signal, which does not end, is not.
func TestGoroutineOfWaitGroup(t *testing.T) {
	t.Parallel()
	e := &recorder{TB: t}
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
