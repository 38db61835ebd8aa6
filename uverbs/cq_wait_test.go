package uverbs

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// until calls cond until it returns true. If it never does, the timeout of the test run ends the
// test.
func until(cond func() bool) {
	for !cond() {
		runtime.Gosched()
	}
}

// TestWait checks that Wait returns when a completion arrives while it sleeps.
func TestWait(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	f := r.p.cqs[0]
	for i := range 100 {
		arms := f.armings()
		done := make(chan error)
		go func() { done <- b.cq.Wait(context.Background()) }()
		until(func() bool { return f.armings() > arms })
		f.push(WC{WRID: uint64(i)})
		check(t, <-done)
		var wcs [2]WC
		if n, err := b.cq.Poll(wcs[:]); n != 1 || err != nil || wcs[0].WRID != uint64(i) {
			t.Fatalf("Poll: %d, %v, %+v", n, err, wcs[0])
		}
	}
}

// TestWaitReady checks that Wait needs no event if the CQ has a completion, even if its ctx has
// ended.
func TestWaitReady(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.p.cqs[0].push(WC{})
	check(t, b.cq.Wait(ctx))
	if n := r.p.cqs[0].armings(); n != 0 {
		t.Errorf("armed %d times for a completion that was there", n)
	}
}

func TestWaitEnds(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	cause := errors.New("the operator said so")
	for name, tc := range map[string]struct {
		ctx  func() (context.Context, context.CancelFunc)
		want error
	}{
		"cancelled": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(context.Background(), time.Millisecond, cause)
		}, cause},
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Millisecond)
		}, context.DeadlineExceeded},
		"ended before": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}, context.Canceled},
	} {
		ctx, cancel := tc.ctx()
		for what, wait := range map[string]func() error{
			"Wait":      func() error { return b.cq.Wait(ctx) },
			"PollWait":  func() error { return second(b.cq.PollWait(ctx, make([]WC, 1))) },
			"NextEvent": func() error { return second(r.c.NextEvent(ctx)) },
		} {
			if err := wait(); !errors.Is(err, tc.want) {
				t.Errorf("%s, %s: %v, want %v", what, name, err, tc.want)
			}
		}
		cancel()
	}
	// Later waits are not affected by one that has ended.
	done := make(chan error)
	go func() { done <- b.cq.Wait(context.Background()) }()
	until(func() bool { return b.cq.channel.reader.Load() == b.cq })
	r.p.cqs[0].push(WC{})
	check(t, <-done)
}

// TestWaiters checks that each completion wakes one of many goroutines that wait on a CQ, and that
// all waits end.
func TestWaiters(t *testing.T) {
	const waiters, each = 16, 50
	r := newRig(t)
	b := r.bundle(t, false)
	f := r.p.cqs[0]
	var got atomic.Int64
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			wcs := make([]WC, 1)
			for range each {
				n, err := b.cq.PollWait(context.Background(), wcs)
				if err != nil {
					t.Error(err)
					return
				}
				got.Add(int64(n))
			}
		})
	}
	for i := range waiters * each {
		// Alternate between single completions and bursts.
		if i%64 < 32 {
			until(func() bool { return got.Load() == int64(i) })
		}
		until(func() bool { return int64(i)-got.Load() < 200 })
		f.push(WC{WRID: uint64(i)})
	}
	wg.Wait()
	if got.Load() != waiters*each {
		t.Errorf("%d completions taken, want %d", got.Load(), waiters*each)
	}
}

// TestWaitersSleep checks that waiters without a completion sleep: one event must not make them arm
// the CQ again and again.
func TestWaitersSleep(t *testing.T) {
	const waiters = 8
	r := newRig(t)
	b := r.bundle(t, false)
	f := r.p.cqs[0]
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	taken := make(chan struct{})
	for range waiters {
		wg.Go(func() {
			n, err := b.cq.PollWait(ctx, make([]WC, 1))
			if n == 1 {
				taken <- struct{}{}
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	until(func() bool { return int(b.cq.waiters.Load()) == waiters && b.cq.channel.reader.Load() == b.cq })
	f.push(WC{})
	<-taken
	settled := f.armings()
	for range 20000 {
		runtime.Gosched()
	}
	if n := f.armings() - settled; n > waiters {
		t.Errorf("%d armings after one completion: the waiters keep each other awake", n)
	}
	cancel()
	wg.Wait()
}

// TestCloseWakesAll checks that Close of a CQ or of the Context wakes every waiter.
func TestCloseWakesAll(t *testing.T) {
	for name, end := range map[string]func(*rig, *CQ) error{
		"CQ":      func(_ *rig, q *CQ) error { return q.Close() },
		"Context": func(r *rig, _ *CQ) error { return r.c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			q := good(r.c.CreateCQ(CQConfig{Entries: 8}))(t)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := q.Wait(context.Background()); !errors.Is(err, ErrClosed) {
						t.Errorf("Wait: %v, want ErrClosed", err)
					}
				})
			}
			events := make(chan error, 1)
			if name == "Context" {
				go func() { events <- second(r.c.NextEvent(context.Background())) }()
				until(waitingForEvent)
			} else {
				events <- ErrClosed
			}
			until(func() bool { return q.waiters.Load() == 8 && q.channel.reader.Load() == q })
			check(t, end(r, q))
			wg.Wait()
			if err := <-events; !errors.Is(err, ErrClosed) {
				t.Errorf("NextEvent: %v, want ErrClosed", err)
			}
		})
	}
}

func TestNoEvents(t *testing.T) {
	r := newRig(t)
	q := good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	for _, err := range []error{q.Arm(false), q.Wait(context.Background())} {
		if !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	}
	if n := r.k.Count("CREATE_COMP_CHANNEL"); n != 0 {
		t.Error("a channel was made for a CQ without events")
	}
	if _, err := q.PollWait(context.Background(), nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("PollWait without room: %v", err)
	}
}

// TestAsyncEvents checks that events name their objects, and that events of closed objects are
// dropped.
func TestAsyncEvents(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	gone := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	check(t, gone.Close())
	for _, e := range []struct {
		element uint64
		typ     EventType
	}{{gone.id, EventCQErr}, {1 << 60, EventQPFatal}, {b.qp.id, EventCommEst}, {b.cq.id, EventCQErr}, {1, EventPortErr},
		{2, 77}} {
		check(t, r.k.Async(e.element, uint32(e.typ)))
	}
	want := []AsyncEvent{{Type: EventCommEst, QP: b.qp}, {Type: EventCQErr, CQ: b.cq}, {Type: EventPortErr, Port: 1},
		{Type: 77}}
	for _, w := range want {
		got, err := r.c.NextEvent(context.Background())
		check(t, err)
		if got != w {
			t.Errorf("event %+v, want %+v", got, w)
		}
	}
}

// TestStrayCompEvent checks that ids are never reused, so that a completion event of a closed CQ
// wakes no goroutine.
func TestStrayCompEvent(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	if o := r.c.lookup(b.qp.id); o != any(b.qp) {
		t.Fatal("the QP has no id")
	}
	seen := map[uint64]bool{0: true}
	for _, id := range []uint64{b.qp.id, b.cq.id} {
		if seen[id] {
			t.Error("ids are not unique")
		}
		seen[id] = true
	}
	for range 10 {
		q := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
		if seen[q.id] {
			t.Errorf("id %d comes again", q.id)
		}
		seen[q.id] = true
		check(t, q.Close())
		if r.c.lookup(q.id) != nil {
			t.Errorf("id %d is that of a closed CQ", q.id)
		}
	}
}

// waitErrors returns the errors of waits whose ctx has ended.
func waitErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	b.busy(t)
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	is := []error{context.DeadlineExceeded}
	return []errorCase{
		{"Wait", b.cq.Wait(ctx), is},
		{"WaitEvent", b.cq.WaitEvent(ctx), is},
		{"PollWait", second(b.cq.PollWait(ctx, make([]WC, 1))), is},
		{"NextEvent", second(r.c.NextEvent(ctx)), is},
		{"Drain", b.qp.Drain(ctx), is},
	}
}

// TestWaitErrors checks that the error of a wait whose ctx has ended names the operation and the
// object, and wraps the cause.
func TestWaitErrors(t *testing.T) {
	objects := map[string]string{"NextEvent": "asynchronous event on fake0", "Drain": "drain fake0 QP "}
	for _, c := range waitErrors(t) {
		want := objects[c.name]
		if want == "" {
			want = "completion on fake0 CQ "
		}
		var timeout interface{ Timeout() bool }
		if !errors.Is(c.err, context.DeadlineExceeded) || !errors.As(c.err, &timeout) || !timeout.Timeout() ||
			!strings.Contains(c.err.Error(), want) {
			t.Errorf("%s: %v, want …%s…", c.name, c.err, want)
		}
	}
}
