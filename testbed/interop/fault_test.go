//go:build vm

package interop

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A fault is a failure that programs in C have caused.
type fault struct{ error }

// failure returns an error with what programs printed, and with how those ended that have. It is a fault if SIGSEGV has
// killed one, because a program in Go panics.
func failure(err error, programs ...*program.Process) error {
	var b strings.Builder
	crashed := false
	for _, p := range programs {
		fmt.Fprintf(&b, "\n%v", p)
		if p.Running() {
			continue
		}
		end := p.Wait()
		fmt.Fprintf(&b, "\nended: %v", end)
		var exit *vm.ExitError
		crashed = crashed || errors.As(end, &exit) && exit.Status.Signal() == syscall.SIGSEGV
	}
	err = fmt.Errorf("%w%s", err, &b)
	if crashed {
		return fault{err}
	}
	return err
}

// attempts is how often a case runs at most.
const attempts = 3

// untilNoFault runs a case again if a C program has a fault in it. udpong of rdma-core and iperf3 with librspreload
// crash now and then, with a peer in C as well.
func untilNoFault(t *testing.T, run func() error) {
	t.Helper()
	for n := 1; ; n++ {
		err := run()
		if err == nil {
			return
		}
		if !errors.As(err, new(fault)) || n == attempts {
			t.Fatal(err)
		}
		t.Logf("a fault of C programs, attempt %d of %d: %v", n, attempts, err)
	}
}
