package rdmacm_test

import (
	"encoding/binary"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"golang.org/x/sys/unix"
)

// TestStop ends commands that wait in the kernel. A full eventfd is such a kernel: a write reads its eight bytes, here
// the header of a command, waits until a signal ends the wait, and refuses a header whose bits are all set.
func TestStop(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	must(t, err)
	f, err := rdmacm.OnFile(os.NewFile(uintptr(fd), "eventfd"))
	must(t, err)
	defer f.Close()
	_, err = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1))
	must(t, err)
	must(t, unix.SetNonblock(fd, false))

	var s rdmacm.Stop
	issue := func() <-chan error {
		result := make(chan error, 1)
		go func() { result <- f.IssueHeader(&s) }()
		return result
	}
	for n := range 200 {
		result := issue()
		if n%2 == 0 { // otherwise the command may not have begun, or not have entered the kernel
			untilAsleep(t, &s)
		}
		s.End()
		if err := finished(t, result); err != unix.ECANCELED {
			t.Fatalf("round %d: %v", n, err)
		}
		if err := finished(t, issue()); err != unix.ECANCELED {
			t.Fatalf("round %d, after the end: %v", n, err)
		}
		s.Resume()
	}
	result := issue()
	untilAsleep(t, &s)
	must(t, unix.Tgkill(unix.Getpid(), s.Thread(), unix.SIGURG)) // as Go's scheduler may do
	_, err = unix.Read(fd, make([]byte, 8))
	must(t, err)
	must(t, finished(t, result))
}

func finished(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the command still waits")
		return nil
	}
}

// untilAsleep waits until the thread of a command sleeps.
func untilAsleep(t *testing.T, s *rdmacm.Stop) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		if id := s.Thread(); id != 0 {
			stat, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(id) + "/stat")
			must(t, err)
			if _, after, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(after, "S") {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the command does not wait")
		}
	}
}
