package uverbs

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/verbs"
)

// TestEndWaits checks that EndWaits ends all waits on an empty queue, present and future, but none
// while the queue has a completion.
func TestEndWaits(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	over := errors.New("over")
	const waiters = 4
	done := make(chan error, waiters)
	for range waiters {
		go func() { done <- second(b.cq.PollWait(context.Background(), make([]WC, 1))) }()
	}
	until(func() bool { return int(b.cq.waiters.Load()) == waiters && b.cq.channel.reader.Load() == b.cq })
	b.cq.endWaits(over)
	for range waiters {
		if err := <-done; !errors.Is(err, over) {
			t.Errorf("a wait under way: %v, want %v", err, over)
		}
	}
	r.p.cqs[0].push(WC{WRID: 7})
	wcs := make([]WC, 1)
	if n, err := b.cq.PollWait(context.Background(), wcs); n != 1 || err != nil || wcs[0].WRID != 7 {
		t.Errorf("a completion that is there: %d, %v, %+v", n, err, wcs[0])
	}
	if err := b.cq.Wait(context.Background()); !errors.Is(err, over) {
		t.Errorf("a wait that begins later: %v, want %v", err, over)
	}
	b.cq.endWaits(nil)
	arms := r.p.cqs[0].armings()
	go func() { done <- b.cq.Wait(context.Background()) }()
	until(func() bool { return r.p.cqs[0].armings() > arms })
	r.p.cqs[0].push(WC{})
	check(t, <-done)
}

// TestInterrupt checks that Interrupt ends waits on an empty queue until it is reset, and that what EndWaits has set
// meanwhile remains.
func TestInterrupt(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	done := make(chan error)
	go func() { done <- second(b.cq.PollWait(context.Background(), make([]WC, 1))) }()
	until(func() bool { return b.cq.channel.reader.Load() == b.cq })
	verbs.Interrupt(b.cq, true)
	if err := <-done; err != verbs.ErrInterrupted {
		t.Errorf("a wait under way: %v, want %v", err, verbs.ErrInterrupted)
	}
	over := errors.New("over")
	b.cq.endWaits(over)
	if err := b.cq.Wait(context.Background()); err != verbs.ErrInterrupted {
		t.Errorf("a wait that begins later: %v, want %v", err, verbs.ErrInterrupted)
	}
	r.p.cqs[0].push(WC{WRID: 7})
	wcs := make([]WC, 1)
	if n, err := b.cq.PollWait(context.Background(), wcs); n != 1 || err != nil || wcs[0].WRID != 7 {
		t.Errorf("a completion that is there: %d, %v, %+v", n, err, wcs[0])
	}
	verbs.Interrupt(b.cq, false)
	if err := b.cq.Wait(context.Background()); err != over {
		t.Errorf("after the interrupt: %v, want %v", err, over)
	}
}

// A slowCQ calls a function between a look at the queue and what follows it.
type slowCQ struct {
	*fakeCQ
	between func()
}

func (q *slowCQ) Ready() bool {
	defer q.between()
	return q.fakeCQ.Ready()
}

// TestEndWaitsAfterCompletion checks that a completion which arrives before EndWaits is polled, although the
// queue was empty when the wait looked at it.
func TestEndWaitsAfterCompletion(t *testing.T) {
	b := newRig(t).bundle(t, false)
	q := b.cq.impl.(*fakeCQ)
	b.cq.impl = &slowCQ{q, sync.OnceFunc(func() {
		q.push(WC{WRID: 7})
		b.cq.endWaits(errors.New("over"))
	})}
	wcs := make([]WC, 1)
	if n, err := b.cq.PollWait(context.Background(), wcs); n != 1 || err != nil || wcs[0].WRID != 7 {
		t.Errorf("%d completions, %v, %+v", n, err, wcs[0])
	}
	b.cq.impl = q
}

// TestEndWaitsNoEvents checks that EndWaits has no effect on a queue with NoEvents.
func TestEndWaitsNoEvents(t *testing.T) {
	r := newRig(t)
	q := good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	q.endWaits(errors.New("over"))
	if _, err := q.PollWait(context.Background(), make([]WC, 1)); !errors.Is(err, errNoEvents) {
		t.Errorf("PollWait: %v", err)
	}
}

// TestSendsInFlight checks that SendsInFlight does not count requests that have completed and have
// not been polled.
func TestSendsInFlight(t *testing.T) {
	b := newRig(t).bundle(t, false)
	if n := b.qp.sendsInFlight(); n != 0 {
		t.Errorf("%d sends of an idle QP", n)
	}
	b.busy(t)
	for unpolled, want := range map[int]int{0: 2, 1: 1, 2: 0, 9: 0} {
		b.cq.impl.(*fakeCQ).unpolled = [2]int{unpolled, 0}
		if n := b.qp.sendsInFlight(); n != want {
			t.Errorf("%d of 2 sends are over: %d in flight, want %d", unpolled, n, want)
		}
	}
	check(t, b.qp.Close())
	if n := b.qp.sendsInFlight(); n != 0 {
		t.Errorf("%d sends of a closed QP", n)
	}
}
