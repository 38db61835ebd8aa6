package uverbs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/polltest"
)

// polls returns how many of n waits poll, each of which finds something or not.
func (p *polling) polls(n int, found bool) (polled int) {
	for range n {
		if p.time() > 0 {
			polled++
			p.done(found)
		}
	}
	return polled
}

// TestPollingChosen checks when waits poll if the library chooses.
func TestPollingChosen(t *testing.T) {
	polltest.Choose(t)
	var p polling
	if n := p.polls(1000, true); n != 1000 {
		t.Errorf("%d of 1000 waits poll, and find something", n)
	}
	// In vain: after pauses of 1, 3, 7 ... waits, and then of maxSkips.
	if n := p.polls(1+2+4+8+16+32+64+128+256*10, false); n != 18 {
		t.Errorf("%d waits poll in vain, want 18", n)
	}
	p.skip.Store(0)
	if n := p.polls(1, true) + p.polls(100, true); n != 101 {
		t.Errorf("after a success: %d of 101 waits poll", n)
	}
	p.set.Store(-1)
	if d := p.time(); d != 0 {
		t.Errorf("waits poll for %v, and must not", d)
	}
	p.set.Store(int64(time.Second))
	if n := p.polls(1000, false); n != 1000 {
		t.Errorf("%d of 1000 waits poll, and all must", n)
	}
}

// TestPollingWaits checks that a wait that polls does not arm the queue if a completion comes, and ends for the reasons
// for which a wait that sleeps ends.
func TestPollingWaits(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	f := r.p.cqs[0]
	b.cq.SetPolling(time.Hour)
	waits := func(ctx context.Context) chan error {
		done := make(chan error)
		go func() { done <- b.cq.Wait(ctx) }()
		until(func() bool { return b.cq.waiters.Load() == 1 })
		return done
	}
	done := waits(context.Background())
	f.push(WC{})
	check(t, <-done)
	if _, err := b.cq.Poll(make([]WC, 1)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done = waits(ctx)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	ended := errors.New("the peer has gone")
	done = waits(context.Background())
	b.cq.endWaits(ended)
	if err := <-done; err != ended {
		t.Errorf("ended: %v", err)
	}
	b.cq.endWaits(nil)
	before := f.armings()
	done = waits(context.Background())
	check(t, b.qp.Close())
	check(t, b.cq.Close())
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if n := f.armings() - before; n != 0 {
		t.Errorf("a wait that polled has armed the queue %d times", n)
	}
}

// TestPollingBubble checks that polling ends if the clock stands still.
func TestPollingBubble(t *testing.T) {
	polltest.Choose(t)
	r := newRig(t)
	b := r.bundle(t, false)
	synctest.Test(t, func(t *testing.T) { b.cq.poll(t.Context()) })
	if b.cq.polling.skips.Load() != 1 {
		t.Error("the wait has not polled in vain")
	}
}
