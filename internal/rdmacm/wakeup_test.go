package rdmacm_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/monitortest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// TestBusyAfterEvent checks that goroutines, timers and descriptors do not wait for goroutines that an
// event has woken in an idle process, and that occupy all CPUs since.
func TestBusyAfterEvent(t *testing.T) {
	monitortest.Check(t, func(int) error {
		fd, err := monitortest.Timer(monitortest.Idle)
		if err != nil {
			return err
		}
		f, err := rdmacm.NewFake(fd, kernelFunc(func(rdmacm.Call) unix.Errno {
			var left unix.ItimerSpec
			if err := unix.TimerfdGettime(fd, &left); err != nil {
				return unix.EBADF
			}
			if left.Value != (unix.Timespec{}) {
				return unix.EAGAIN
			}
			return 0
		}))
		if err != nil {
			return err
		}
		t.Cleanup(func() { must(t, f.Close()) }) // later, since Go's scheduler is notified of it
		return f.NextEvent(new(uapi.RdmaUcmEventResp))
	}, func(int) {})
}
