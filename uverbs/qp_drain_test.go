package uverbs

import (
	"context"
	"errors"
	"testing"
)

// busy posts sends and receives that the device does not complete.
func (b *bundle) busy(t *testing.T) *fakeQP {
	t.Helper()
	f := b.qp.impl.(*fakeQP)
	f.stuck = true
	good(b.qp.PostSend(SendWR{Opcode: OpSend}, SendWR{Opcode: OpSend}))(t)
	good(b.qp.PostRecv(RecvWR{}))(t)
	return f
}

// TestDrain checks that Drain waits for both queues.
func TestDrain(t *testing.T) {
	for _, sendsFirst := range []bool{true, false} {
		b := newRig(t).bundle(t, false)
		f := b.busy(t)
		done := make(chan error, 1)
		go func() { done <- b.qp.Drain(t.Context()) }()
		until(func() bool { return b.qp.State() == StateErr })
		giveBack := func(sends bool) {
			b.qp.lockBoth()
			defer b.qp.unlockBoth()
			if sends {
				f.out = 0
			} else {
				f.received = 0
			}
		}
		giveBack(sendsFirst)
		ctx, cancel := context.WithTimeout(t.Context(), 5*longestPause)
		defer cancel()
		if err := b.qp.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with one of the queues empty: %v", err)
		}
		giveBack(!sendsFirst)
		check(t, <-done)
	}
}

// TestDrainUnpolled checks that requests whose completions have not been polled count as drained.
func TestDrainUnpolled(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	recvs := good(r.c.CreateCQ(CQConfig{Entries: 8}))(t)
	qp := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, RecvCQ: recvs, MaxSendWR: 2, MaxRecvWR: 2}))(t)
	check(t, qp.Connect(good(qp.Endpoint())(t)))
	qp.impl.(*fakeQP).stuck = true
	good(qp.PostSend(SendWR{Opcode: OpSend}, SendWR{Opcode: OpSend}))(t)
	good(qp.PostRecv(RecvWR{}))(t)
	for _, c := range []struct {
		sends, recvs int
		done         bool
	}{{0, 0, false}, {2, 0, false}, {1, 1, false}, {2, 1, true}} {
		b.cq.impl.(*fakeCQ).unpolled, recvs.impl.(*fakeCQ).unpolled = [2]int{c.sends, 9}, [2]int{9, c.recvs}
		ctx, cancel := context.WithTimeout(t.Context(), 5*longestPause)
		if err := qp.Drain(ctx); (err == nil) != c.done {
			t.Errorf("%d of 2 sends and %d of 1 receive over: %v", c.sends, c.recvs, err)
		}
		cancel()
	}
}

// TestDrainOfADeviceThatGoes checks that Drain returns an error if the device fails, as it
// completes no more requests then.
func TestDrainOfADeviceThatGoes(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	b.busy(t)
	done := make(chan error, 1)
	go func() { done <- b.qp.Drain(t.Context()) }()
	until(func() bool { return b.qp.State() == StateErr })
	check(t, r.k.Async(1, uint32(EventDeviceFatal)))
	good(r.c.NextEvent(t.Context()))(t)
	if err := <-done; !errors.Is(err, ErrDeviceGone) {
		t.Error(err)
	}
}

// TestDrainOfAQPThatGoes checks that Drain ends if the QP is closed or moved to RESET meanwhile,
// even if the QP is in use again by then.
func TestDrainOfAQPThatGoes(t *testing.T) {
	reset := func(q *QP) error { return q.Modify(QPAttr{State: StateReset}, MaskState) }
	for name, c := range map[string]struct {
		end  func(*QP) error
		want error
	}{
		"closed": {(*QP).Close, ErrClosed},
		"RESET":  {reset, nil},
		"INIT":   {func(q *QP) error { return errors.Join(reset(q), q.Init(), second(q.PostRecv(RecvWR{}))) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRig(t).bundle(t, false)
			b.busy(t)
			done := make(chan error, 1)
			go func() { done <- b.qp.Drain(t.Context()) }()
			until(func() bool { return b.qp.State() == StateErr })
			check(t, c.end(b.qp))
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("Drain: %v, want %v", err, c.want)
			}
		})
	}
}

// drainErrors returns a part of the cases of TestErrorTexts.
func drainErrors(t *testing.T) []errorCase {
	removed := newRig(t)
	on := removed.bundle(t, false)
	removed.k.Unplug()
	gone := on.qp.Drain(t.Context())
	r := newRig(t)
	b := r.bundle(t, false)
	fresh := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	check(t, fresh.Drain(t.Context())) // does not wait in RESET
	check(t, fresh.Close())
	b.busy(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cancelled := b.qp.Drain(ctx)
	check(t, b.qp.Close())
	return []errorCase{
		{"Drain, device gone", gone, []error{ErrDeviceGone}},
		{"Drain, cancelled", cancelled, []error{context.Canceled}},
		{"Drain of a closed QP in RESET", fresh.Drain(t.Context()), []error{ErrClosed}},
		{"Drain of a closed QP", b.qp.Drain(t.Context()), []error{ErrClosed}},
	}
}

// TestDrainHalves checks that Drain of a QP with only one queue, or with an SRQ, waits for the
// queue that exists.
func TestDrainHalves(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	check(t, m.qp.Drain(t.Context()))
	for _, cfg := range []QPConfig{{MaxSendWR: 1}, {MaxRecvWR: 1}, {}} {
		cfg.Type, cfg.SendCQ = UC, b.cq
		qp := good(b.pd.CreateQP(cfg))(t)
		check(t, qp.Init())
		check(t, qp.Drain(t.Context()))
	}
}
