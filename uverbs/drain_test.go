package uverbs

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// sendAll posts n signaled sends numbered from 0, and n receives from 1000.
func (b *bundle) sendAll(t *testing.T, n int) {
	t.Helper()
	for i := range uint64(n) {
		good(b.qp.PostSend(SendWR{WRID: i, Opcode: OpSend, Flags: Signaled}))(t)
	}
}

// numbered polls until there is nothing, and wants completions 0 to n-1.
func (b *bundle) numbered(t *testing.T, n uint64) {
	t.Helper()
	var wcs [3]WC
	next := uint64(0)
	for {
		got := good(b.cq.Poll(wcs[:]))(t)
		if got == 0 {
			break
		}
		for _, wc := range wcs[:got] {
			if wc.WRID != next {
				t.Fatalf("completion %+v, want %d", wc, next)
			}
			next++
		}
	}
	if next != n {
		t.Errorf("%d completions, want %d", next, n)
	}
}

// What Drain takes out of the CQ is there for Poll, in order, and nothing of
// its own.
func TestDrainKeepsCompletions(t *testing.T) {
	for _, single := range []bool{false, true} {
		r := newRig(t)
		b := r.bundle(t, single)
		r.p.qps[0].full = 3
		for range 3 {
			b.sendAll(t, 50)
			check(t, b.qp.Drain(t.Context()))
			if s := b.qp.State(); s != StateErr {
				t.Errorf("the QP is in %v", s)
			}
			if ready, err := b.cq.ready(); !ready || err != nil {
				t.Errorf("ready: %v, %v", ready, err)
			}
			check(t, b.cq.Wait(t.Context()))
			b.numbered(t, 50)
			if b.cq.kept != nil {
				t.Error("Poll still takes the long way")
			}
		}
	}
}

// A Poll beside Drain finds the marks, and shows none.
func TestDrainBesidePoll(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const rounds, list = 20, 30
	polled := make(chan error, 1)
	next := uint64(0)
	go func() {
		var wcs [7]WC
		for {
			n, err := b.cq.PollWait(ctx, wcs[:])
			if err != nil {
				polled <- err
				return
			}
			for _, wc := range wcs[:n] {
				if wc.WRID != next%list {
					polled <- errors.New("out of order")
					return
				}
				next++
			}
		}
	}()
	for range rounds {
		b.sendAll(t, list)
		check(t, b.qp.Drain(ctx))
	}
	until(func() bool { ready, _ := b.cq.ready(); return !ready })
	cancel()
	if err := <-polled; !errors.Is(err, context.Canceled) || next != rounds*list {
		t.Errorf("%v after %d completions, want %d", err, next, rounds*list)
	}
}

// The end of the context ends Drain. The mark is not shown when it comes after
// all.
func TestDrainEnds(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	f := r.p.qps[0]
	b.sendAll(t, 2)
	f.mute = true
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := b.qp.Drain(ctx); !errors.Is(err, cause) {
		t.Fatalf("Drain: %v", err)
	}
	f.sends.push(WC{WRID: f.lastMark, QPNum: f.num, Status: WCWRFlushErr})
	b.numbered(t, 2)
	if b.cq.kept != nil {
		t.Error("Poll still takes the long way")
	}
	f.full = 1 << 30
	if err := b.qp.Drain(ctx); !errors.Is(err, cause) {
		t.Fatalf("Drain of a full queue: %v", err)
	}
	if b.cq.kept != nil {
		t.Error("a mark that was not posted is still looked out for")
	}
}

// A QP that is closed, or moved to RESET, under Drain ends it.
func TestDrainOfAQPThatGoes(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*QP) error
		want error
	}{
		"closed": {(*QP).Close, ErrClosed},
		"RESET":  {func(q *QP) error { return q.Modify(QPAttr{State: StateReset}, MaskState) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			b := r.bundle(t, false)
			r.p.qps[0].mute = true
			done := make(chan error, 1)
			go func() { done <- b.qp.Drain(t.Context()) }()
			until(func() bool { return b.qp.State() == StateErr })
			check(t, c.end(b.qp))
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("Drain: %v, want %v", err, c.want)
			}
			b.numbered(t, 0)
			if b.cq.kept != nil {
				t.Error("Poll still takes the long way")
			}
		})
	}
}

// drainErrors are a part of TestErrorTexts.
func drainErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"MODIFY_QP": unix.EIO} })
	gone := b.qp.Drain(t.Context())
	r.k.Set(func() { r.k.Refuse = nil })
	fresh := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	check(t, fresh.Drain(t.Context())) // in RESET there is nothing
	check(t, fresh.Close())
	check(t, b.qp.Close())
	return []errorCase{
		{"Drain, device gone", gone, []error{ErrDeviceGone}},
		{"Drain of a closed QP in RESET", fresh.Drain(t.Context()), []error{ErrClosed}},
		{"Drain of a closed QP", b.qp.Drain(t.Context()), []error{ErrClosed}},
	}
}

// A QP without one of the queues, or with an SRQ, drains the other.
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
	b.numbered(t, 0)
}
