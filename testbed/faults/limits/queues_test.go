//go:build device

package limits

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceOverrun completes more requests than the CQ has room for. rxe drops the other
// completions and raises an event for each. Polls of the empty CQ report the overrun, so
// that no caller waits for a dropped completion. When there is room again, the kernel
// continues to add completions.
func TestDeviceOverrun(t *testing.T) {
	dev := open(t)
	pd := must(dev.AllocPD())(t)
	a, b := newEnd(t, pd, 4), newEnd(t, pd, 4)
	ea, eb := must(a.qp.Endpoint())(t), must(b.qp.Endpoint())(t)
	connect(t, a.qp, eb, 6, 7)
	connect(t, b.qp, ea, 6, 7)
	room := a.cq.Entries()
	const beyond = 10
	for i := range room + beyond {
		a.write(t, b, uint64(i))
	}
	ctx := limited(t)
	for i := range beyond {
		e, err := dev.NextEvent(ctx)
		if err != nil || e.Type != uverbs.EventCQErr || e.CQ != a.cq {
			t.Fatalf("event %d: %+v, %v", i, e, err)
		}
	}
	for i, s := range a.statuses(t, room) {
		if s != uverbs.WCSuccess {
			t.Errorf("request %d: %v", i, s)
		}
	}
	var wcs [1]uverbs.WC
	if n, err := a.cq.Poll(wcs[:]); n != 0 || !errors.Is(err, uverbs.ErrCQOverrun) {
		t.Errorf("%d completions more, %v, want ErrCQOverrun", n, err)
	}
	if _, err := a.cq.PollWait(ctx, wcs[:]); !errors.Is(err, uverbs.ErrCQOverrun) {
		t.Errorf("PollWait: %v, want ErrCQOverrun", err)
	}
	a.write(t, b, 0)
	n := 0
	for n == 0 && ctx.Err() == nil {
		n, _ = a.cq.Poll(wcs[:]) // ErrCQOverrun until it has arrived
	}
	if n != 1 || wcs[0].Status != uverbs.WCSuccess {
		t.Errorf("after the overrun: %d completions, %v", n, wcs[0].Status)
	}
	t.Logf("%d requests: %d completions, %d events; one more request completed", room+beyond, room, beyond)
}

// TestDeviceRetries exhausts retries. The first request reports the reason, later ones are
// flushed, and after a reset the QP works again.
func TestDeviceRetries(t *testing.T) {
	for _, c := range []struct {
		name string
		// lame makes the peer unable to respond, and mend makes it respond again.
		lame, mend func(t *testing.T, b end, ea uverbs.Endpoint)
		want       uverbs.WCStatus
	}{
		{"RNR", func(*testing.T, end, uverbs.Endpoint) {}, func(t *testing.T, b end, _ uverbs.Endpoint) {
			_, err := b.qp.PostRecv(uverbs.RecvWR{WRID: 0, SGL: []uverbs.SGE{b.mr.SGE(0, 64)}})
			check(t, err)
		}, uverbs.WCRNRRetryExcErr},
		{"no response", func(t *testing.T, b end, _ uverbs.Endpoint) {
			check(t, b.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
		}, func(t *testing.T, b end, ea uverbs.Endpoint) {
			_, err := b.qp.PostRecv(uverbs.RecvWR{WRID: 0, SGL: []uverbs.SGE{b.mr.SGE(0, 64)}})
			check(t, err)
		}, uverbs.WCRetryExcErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := open(t)
			pd := must(dev.AllocPD())(t)
			a, b := newEnd(t, pd, 64), newEnd(t, pd, 64)
			ea, eb := must(a.qp.Endpoint())(t), must(b.qp.Endpoint())(t)
			connect(t, a.qp, eb, 2, 2)
			connect(t, b.qp, ea, 2, 2)
			c.lame(t, b, ea)
			const behind = 5
			send := func(id uint64) {
				_, err := a.qp.PostSend(uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
					SGL: []uverbs.SGE{a.mr.SGE(0, 64)}})
				check(t, err)
			}
			for i := range 1 + behind {
				send(uint64(i))
			}
			want := append([]uverbs.WCStatus{c.want}, slices.Repeat([]uverbs.WCStatus{uverbs.WCWRFlushErr}, behind)...)
			if got := a.statuses(t, 1+behind); !slices.Equal(got, want) {
				t.Fatalf("the requests ended with %v, want %v", got, want)
			}
			for _, q := range []*uverbs.QP{a.qp, b.qp} {
				check(t, q.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
				check(t, q.Init())
			}
			c.mend(t, b, ea)
			connect(t, a.qp, eb, 6, 7)
			connect(t, b.qp, ea, 6, 7)
			send(0)
			if s, r := a.statuses(t, 1), b.statuses(t, 1); s[0] != uverbs.WCSuccess || r[0] != uverbs.WCSuccess {
				t.Errorf("after a reset: %v, %v", s, r)
			}
		})
	}
}
