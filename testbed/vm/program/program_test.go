//go:build vm

package program

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// TestShowThreads checks that the threads of a program that does not exit are shown, also after its time limit.
func TestShowThreads(t *testing.T) {
	g := vm.Start(t, vm.Config{Kernel: "7.2", Root: true})
	killed := Start(t, g, "sleep", "1000")
	killed.ShowThreads()
	killed.Kill()
	<-killed.Ended
	late := StartFor(t, time.Second, g, "sleep", "1000")
	if err := late.Wait(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the time limit, Wait returns %v", err)
	}
	for _, p := range []*Process{killed, late} {
		if said := p.String(); !strings.Contains(said, "(sleep): ") || !strings.Contains(said, "nanosleep") {
			t.Errorf("the thread of sleep is not shown:\n%s", said)
		}
	}
}
