package uverbs

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// TestWaitLooksAfterArming checks that Wait finds a completion that arrives between the poll and
// the arming, and raises no event.
func TestWaitLooksAfterArming(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	f := r.p.cqs[0]
	f.beforeArm = func() { f.push(WC{}) }
	check(t, b.cq.Wait(context.Background()))
	if n := f.armings(); n != 1 {
		t.Errorf("armed %d times, want once", n)
	}
}

// TestCloseWithEventsPending checks that a Context with unread events can be closed.
func TestCloseWithEventsPending(t *testing.T) {
	r := newRig(t)
	for range 3 {
		check(t, r.k.Async(1, uint32(EventPortErr)))
	}
	good(r.c.NextEvent(context.Background()))(t)
	check(t, r.c.Close())
	if e, err := r.c.NextEvent(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("NextEvent after Close: %+v, %v", e, err)
	}
}

// waitingForEvent reports whether a goroutine waits in NextEvent.
func waitingForEvent() bool {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "Context).NextEvent") && strings.Contains(g, "[select") {
			return true
		}
	}
	return false
}

// TestGates checks in which states each queue of a QP accepts requests, and that RESET empties both
// queues.
func TestGates(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 64, NoEvents: true}))(t)
	qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 8, MaxRecvWR: 8}))(t)
	f := r.p.qps[0]
	f.stuck = true
	expect := func(state QPState, send, recv error) {
		t.Helper()
		if s := qp.State(); s != state {
			t.Errorf("the QP is in %v, want %v", s, state)
		}
		if _, err := qp.PostSend(SendWR{}); err != send {
			t.Errorf("%v: PostSend: %v, want %v", state, err, send)
		}
		batch := qp.StartSend()
		batch.Send(1, 0)
		if err := batch.Submit(); err != send {
			t.Errorf("%v: Submit: %v, want %v", state, err, send)
		}
		if _, err := qp.PostRecv(RecvWR{}); err != recv {
			t.Errorf("%v: PostRecv: %v, want %v", state, err, recv)
		}
	}
	expect(StateReset, ErrState, ErrState)
	check(t, qp.Init())
	expect(StateInit, ErrState, nil)
	check(t, qp.Modify(QPAttr{State: StateRTR, PathMTU: MTU1024,
		AV: AHAttr{IsGlobal: true, Port: 1, SGIDIndex: 2, HopLimit: 64}},
		MaskState|MaskAV|MaskPathMTU|MaskDestQPN|MaskRQPSN|MaskMaxDestRdAtomic|MaskMinRNRTimer))
	expect(StateRTR, ErrState, nil)
	check(t, qp.Modify(QPAttr{State: StateRTS}, MaskState|MaskSQPSN|MaskTimeout|MaskRetryCount|MaskRNRRetryCount|
		MaskMaxRdAtomic))
	expect(StateRTS, nil, nil)
	check(t, qp.Modify(QPAttr{State: StateErr}, MaskState))
	expect(StateErr, nil, nil) // requests are flushed
	if f.out == 0 || f.received == 0 || f.resets != 0 {
		t.Errorf("before RESET: %d sends, %d receives, %d resets", f.out, f.received, f.resets)
	}
	check(t, qp.Modify(QPAttr{State: StateReset}, MaskState))
	if f.out != 0 || f.received != 0 || f.resets != 1 {
		t.Errorf("after RESET: %d sends, %d receives, %d resets", f.out, f.received, f.resets)
	}
	expect(StateReset, ErrState, ErrState)
	// A Modify that the kernel refuses changes nothing.
	if err := qp.Modify(QPAttr{State: StateRTS}, MaskState); err == nil {
		t.Error("RESET to RTS succeeds")
	}
	expect(StateReset, ErrState, ErrState)
}

// TestQueueFullIndex checks that a post to a full queue returns the index of the first request that
// did not fit.
func TestQueueFullIndex(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	r.p.qps[0].stuck = true
	wrs := make([]SendWR, 65)
	if n, err := b.qp.PostSend(wrs...); n != 64 || err != ErrQueueFull {
		t.Errorf("PostSend of 65 to a queue of 64: %d, %v", n, err)
	}
	if n, err := b.qp.PostRecv(make([]RecvWR, 65)...); n != 64 || err != ErrQueueFull {
		t.Errorf("PostRecv of 65 to a queue of 64: %d, %v", n, err)
	}
	batch := b.qp.StartSend()
	batch.Read(1, 0, 1, 1)
	batch.Abort()
	batch.Abort()
	batch.WriteImm(1, 0, 1, 1, 1) // does nothing after Abort
	if err := batch.Submit(); !errors.Is(err, ErrClosed) {
		t.Errorf("Submit after Abort: %v", err)
	}
}

// TestOutstanding checks that the numbers of outstanding requests are right on queues of either
// kind, and zero after Close.
func TestOutstanding(t *testing.T) {
	for _, single := range []bool{false, true} {
		b := newRig(t).bundle(t, single)
		b.qp.impl.(*fakeQP).stuck = true
		want := func(sends, recvs int) {
			t.Helper()
			if s, r := b.qp.SendsOutstanding(), b.qp.RecvsOutstanding(); s != sends || r != recvs {
				t.Errorf("single goroutine %v: %d sends, %d receives, want %d, %d", single, s, r, sends, recvs)
			}
		}
		for n := range 4 {
			want(n, 0)
			good(b.qp.PostSend(SendWR{Opcode: OpSend}))(t)
		}
		good(b.qp.PostRecv(RecvWR{}, RecvWR{}))(t)
		want(4, 2)
		check(t, b.qp.Close())
		want(0, 0)
	}
}
