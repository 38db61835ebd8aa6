package uverbs

import (
	"context"
	"slices"
	"testing"
)

// TestPurge checks that the completions of a QP are removed from its CQs when it is closed or moved
// to RESET, before its queues are released.
func TestPurge(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	other := good(r.c.CreateCQ(CQConfig{Entries: 8}))(t)
	qp := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, RecvCQ: other, MaxSendWR: 1}))(t)
	send, recv := b.cq.impl.(*fakeCQ), other.impl.(*fakeCQ)
	want := func(what string, n int) {
		t.Helper()
		all := slices.Repeat([]providerQP{qp.impl}, n)
		if !slices.Equal(send.purged, all) || !slices.Equal(recv.purged, all) {
			t.Errorf("%s: purged %d and %d times, want %d", what, len(send.purged), len(recv.purged), n)
		}
	}
	check(t, qp.Connect(good(qp.Endpoint())(t)))
	want("RTS", 0)
	check(t, qp.Modify(QPAttr{State: StateReset}, MaskState))
	want("RESET", 1)
	check(t, qp.Close())
	want("Close", 2)
	check(t, b.qp.Close())
	if n := len(send.purged); n != 3 {
		t.Errorf("a CQ for both queues was purged %d times", n-2)
	}
	last := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq}))(t)
	check(t, r.c.Close())
	if slices.Contains(send.purged, last.impl) {
		t.Error("purged while the Context is closed, when the owner of the CQ may be polling")
	}
}

// TestRetireInUse checks that the memory of a queue is unmapped at once only if a lock keeps other goroutines out, and
// that of a QP only if no poll of its CQs may find it.
func TestRetireInUse(t *testing.T) {
	for _, c := range []struct {
		name                     string
		single, singleCQ, ending bool
		cq, qp                   bool
	}{
		{name: "locks"},
		{name: "single-goroutine QP", single: true, qp: true},
		{name: "single-goroutine CQ", singleCQ: true, cq: true, qp: true},
		{name: "Context.Close", ending: true, qp: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			pd := good(r.c.AllocPD())(t)
			cq := good(r.c.CreateCQ(CQConfig{Entries: 8, SingleGoroutine: c.singleCQ}))(t)
			other := good(r.c.CreateCQ(CQConfig{Entries: 8}))(t)
			qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: other, RecvCQ: cq, SingleGoroutine: c.single}))(t)
			if !c.ending {
				check(t, qp.Close())
				check(t, cq.Close())
			}
			check(t, r.c.Close())
			if got := cq.impl.(*fakeCQ).inUse; got != c.cq {
				t.Errorf("the CQ was retired with inUse %v", got)
			}
			if got := qp.impl.(*fakeQP).inUse; got != c.qp {
				t.Errorf("the QP was retired with inUse %v", got)
			}
		})
	}
}

// TestArmCountsEvents checks that Arm passes the number of events that have been read, which a
// device that numbers its events needs.
func TestArmCountsEvents(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	cq := b.cq.impl.(*fakeCQ)
	for n := range uint32(3) {
		check(t, b.cq.Arm(false))
		if cq.events != n {
			t.Errorf("armed with %d events read, want %d", cq.events, n)
		}
		cq.push(WC{})
		check(t, b.cq.WaitEvent(context.Background()))
	}
}
