//go:build vm

package program

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// TestShowThreads checks that the threads of a program that does not exit are shown.
func TestShowThreads(t *testing.T) {
	g := vm.Start(t, vm.Config{Kernel: "7.2", Root: true})
	p := Start(t, g, "sleep", "1000")
	p.showThreads()
	p.Kill()
	<-p.Ended
	if said := p.String(); !strings.Contains(said, "(sleep): ") || !strings.Contains(said, "nanosleep") {
		t.Errorf("the thread of sleep is not shown:\n%s", said)
	}
}
