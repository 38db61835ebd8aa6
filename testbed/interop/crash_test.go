//go:build vm

package interop

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A crash is the failure of a case in which SIGSEGV has killed a program, or the program waits for a lock of a thread
// that has gone. The program is in C: the Go runtime catches the signal, and exits with status 2.
type crash struct{ error }

// failure returns an error with what programs printed, and with how those ended that have.
func failure(err error, programs ...*program.Process) error {
	var b strings.Builder
	crashed := false
	for _, p := range programs {
		select {
		case <-p.Ended:
		case <-time.After(2 * time.Second): // the guest may report the end of another program first
		}
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
		return crash{err}
	}
	return err
}

// attempts is how often a case runs at most.
const attempts = 3

// untilNoCrash runs a case again if a C program has crashed in it. udpong of rdma-core and iperf3 with librspreload do
// that now and then, with a peer in C as well.
func untilNoCrash(t *testing.T, run func() error) {
	t.Helper()
	for n := 1; ; n++ {
		err := run()
		if err == nil {
			return
		}
		if !errors.As(err, new(crash)) || n == attempts {
			t.Fatal(err)
		}
		t.Logf("a C program has crashed, attempt %d of %d: %v", n, attempts, err)
	}
}
