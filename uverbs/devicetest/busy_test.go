package devicetest

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/monitortest"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceBusyAfterWait checks that goroutines, timers and descriptors do not wait for goroutines that
// poll on all CPUs after a completion has woken them in an idle process. The peers do not respond, so
// that the requests complete when the device or the kernel gives up.
func TestDeviceBusyAfterWait(t *testing.T) {
	l := &loop{dev: openDevice(t)}
	l.pd = must(l.dev.AllocPD())(t)
	var ends [monitortest.Waits]end
	for i := range ends {
		ends[i] = l.newEnd(t, nil)
		peer := l.newEnd(t, nil) // it stays in state INIT
		check(t, ends[i].qp.Connect(endpoint(t, peer.qp)))
	}
	monitortest.Check(t, func(i int) error {
		if _, err := ends[i].qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled}); err != nil {
			return err
		}
		var wcs [1]uverbs.WC
		if _, err := ends[i].cq.PollWait(t.Context(), wcs[:]); err != nil {
			return err
		}
		if wcs[0].Status != uverbs.WCRetryExcErr {
			return fmt.Errorf("the request completed with %v", wcs[0].Status)
		}
		return nil
	}, func(i int) {
		var wcs [1]uverbs.WC
		if n, err := ends[i].cq.Poll(wcs[:]); n != 0 || err != nil {
			t.Errorf("Poll of an empty queue: %d, %v", n, err)
		}
	})
}
