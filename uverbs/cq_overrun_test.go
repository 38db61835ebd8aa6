package uverbs

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/verbs"
)

// overrun makes the device complete more requests than the CQ has room for, and raise the event.
func (r *rig) overrun(t *testing.T, q *CQ) {
	t.Helper()
	f := q.impl.(*fakeCQ)
	for range q.Entries() + 1 {
		f.push(WC{})
	}
	check(t, r.k.Async(q.id, uint32(EventCQErr)))
	until(func() bool { return q.failure.Load() != nil })
}

// TestCQOverrun checks that polls and waits of a CQ that overran report that when the CQ is empty,
// whether or not the program calls NextEvent.
func TestCQOverrun(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	small := good(r.c.CreateCQ(CQConfig{Entries: 4}))(t)
	good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: small, RecvCQ: b.cq, MaxSendWR: 16, MaxRecvWR: 1}))(t)
	srq := good(b.pd.CreateSRQ(SRQConfig{MaxWR: 32}))(t)
	good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, RecvCQ: small, SRQ: srq, MaxSendWR: 1}))(t)
	r.overrun(t, small)
	wcs := make([]WC, 16)
	if n, err := small.PollWait(t.Context(), wcs); n != 4 || err != nil {
		t.Fatalf("%d completions, %v: want the 4 that had room", n, err)
	}
	for name, f := range map[string]func() error{
		"Poll":      func() error { return second(small.Poll(wcs)) },
		"PollWait":  func() error { return second(small.PollWait(t.Context(), wcs)) },
		"WaitEvent": func() error { return small.WaitEvent(t.Context()) },
	} {
		if err := f(); !errors.Is(err, ErrCQOverrun) {
			t.Errorf("%s: %v, want ErrCQOverrun", name, err)
		}
	}
	_, err := small.Poll(wcs)
	for _, want := range []string{small.String(), "holds 4 completions", "48 requests", "16 sends and 32 receives",
		"Entries"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	check(t, second(b.cq.Poll(wcs))) // the other CQ still works
	if e, err := r.c.NextEvent(t.Context()); err != nil || e.Type != EventCQErr || e.CQ != small {
		t.Errorf("NextEvent: %+v, %v", e, err)
	}
}

// TestCQOverrunWakesAll checks that an overrun wakes every goroutine that waits for a completion of
// the CQ.
func TestCQOverrunWakesAll(t *testing.T) {
	for name, wait := range map[string]func(context.Context, *CQ) error{
		"PollWait":  func(ctx context.Context, q *CQ) error { return second(q.PollWait(ctx, make([]WC, 1))) },
		"WaitEvent": func(ctx context.Context, q *CQ) error { return q.WaitEvent(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			const waiters = 8
			r := newRig(t)
			q := good(r.c.CreateCQ(CQConfig{Entries: 4}))(t)
			waited := make(chan error, waiters)
			for range waiters {
				go func() { waited <- wait(t.Context(), q) }()
			}
			until(func() bool { return q.waiters.Load() == waiters && q.channel.reader.Load() == q })
			check(t, r.k.Async(q.id, uint32(EventCQErr)))
			for range waiters {
				// WaitEvent may return nil once. The next poll reports the overrun.
				if err := <-waited; err != nil && !errors.Is(err, ErrCQOverrun) || err == nil && name != "WaitEvent" {
					t.Errorf("%v, want ErrCQOverrun", err)
				}
			}
		})
	}
}

// TestCQOverrunThenDeviceGone checks that the error of a removed device replaces the error
// of an overrun.
func TestCQOverrunThenDeviceGone(t *testing.T) {
	r := newRig(t)
	q := good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	r.overrun(t, q)
	r.c.markDeviceGone()
	q.overran()
	check(t, second(q.Poll(make([]WC, 4))))
	if _, err := q.Poll(make([]WC, 4)); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("Poll: %v, want ErrDeviceGone", err)
	}
}

// TestEventsAreKept checks that events are kept if the program does not call NextEvent, and that
// many equal ones are kept once.
func TestEventsAreKept(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	for range manyUnread + 1000 {
		check(t, r.k.Async(1, uint32(EventPortErr)))
	}
	check(t, r.k.Async(b.qp.id, uint32(EventCommEst)))
	check(t, r.k.Async(b.cq.id, uint32(EventCQErr)))
	until(func() bool { return b.cq.failure.Load() != nil })
	n := 0
	for {
		e := good(r.c.NextEvent(t.Context()))(t)
		if e.Type == EventCommEst {
			break
		}
		n++
	}
	if n != manyUnread {
		t.Errorf("%d events of the port are kept, want %d", n, manyUnread)
	}
	if e := good(r.c.NextEvent(t.Context()))(t); e.CQ != b.cq {
		t.Errorf("event %+v, want that of the CQ", e)
	}
}

// TestPortDown checks that the library knows from events which ports are down, and that the program gets them too.
func TestPortDown(t *testing.T) {
	r := newRig(t)
	for _, e := range []struct {
		port  uint64
		typ   EventType
		first bool
		last  bool
	}{{1, EventPortErr, true, false}, {64, EventPortErr, true, true}, {1, EventPortActive, false, true},
		{0, EventPortErr, false, true}, {64, EventPortActive, false, false}} {
		check(t, r.k.Async(e.port, uint32(e.typ)))
		good(r.c.NextEvent(t.Context()))(t)
		if first, last := verbs.PortDown(r.c, 1), verbs.PortDown(r.c, 64); first != e.first || last != e.last {
			t.Errorf("after %v of port %d: port 1 down %t, port 64 down %t", e.typ, e.port, first, last)
		}
	}
}

// TestEventsOfClosedObjects checks that closing an object removes its unread events, but not those
// of a port whose number equals the object's id.
func TestEventsOfClosedObjects(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 4}))(t)
	unread := func() int {
		r.c.events.mu.Lock()
		defer r.c.events.mu.Unlock()
		return len(r.c.events.unread)
	}
	for range 3 {
		q := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
		before := unread()
		check(t, r.k.Async(q.id, uint32(EventCommEst)))
		check(t, r.k.Async(q.id, uint32(EventPortActive))) // of port q.id
		until(func() bool { return unread() == before+2 })
		check(t, q.Close())
		if n := unread(); n != before+1 {
			t.Fatalf("%d events are unread after Close, want %d", n, before+1)
		}
	}
	check(t, cq.Close())
	check(t, pd.Close())
}
