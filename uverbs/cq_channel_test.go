package uverbs

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// limitChannels sets the limit on openCommon until the test ends.
func limitChannels(t *testing.T, n int64) {
	before := channelLimit
	t.Cleanup(func() { channelLimit = before })
	channelLimit = func() int64 { return n }
}

// TestOwnChannels checks that each CQ has a channel to itself, and that few channels stay open that no CQ uses.
func TestOwnChannels(t *testing.T) {
	r := newRig(t)
	limitChannels(t, 1<<20)
	before := openCommon.Load()
	users := map[*CompChannel]bool{}
	var cqs []*CQ
	for range 3 * ownChannels {
		cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
		cqs = append(cqs, cq)
		users[cq.channel] = true
	}
	if n := openCommon.Load() - before; len(users) != len(cqs) || int(n) != len(cqs) {
		t.Errorf("%d CQs use %d channels of %d", len(cqs), len(users), n)
	}
	var closing sync.WaitGroup
	for i, cq := range cqs {
		closing.Go(func() { check(t, cq.Close()) })
		if i%2 == 0 { // again, at the same time
			closing.Go(func() { check(t, cq.Close()) })
		}
	}
	closing.Wait()
	if n := openCommon.Load() - before; n != ownChannels || len(r.c.common.unused) != ownChannels {
		t.Errorf("%d channels are open, %d unused, want %d", n, len(r.c.common.unused), ownChannels)
	}
	for i, ch := range r.c.common.all {
		if ch.place != i || ch.cqs != 0 {
			t.Errorf("%v is at %d, not %d, and has %d CQs", ch, i, ch.place, ch.cqs)
		}
	}
	check(t, r.c.Close())
	if n := openCommon.Load() - before; n != 0 {
		t.Errorf("%d channels are open after Close of the Context", n)
	}
}

// TestIdleChannels checks that a Context whose last CQ is closed is idle once, although a channel is closed, too, and
// that a CQ whose creation fails may close the Context.
func TestIdleChannels(t *testing.T) {
	r := newRig(t)
	limitChannels(t, 1<<20)
	var cqs []*CQ
	for range ownChannels + 1 {
		cqs = append(cqs, good(r.c.CreateCQ(CQConfig{Entries: 1}))(t))
	}
	idle := 0
	r.c.onIdle(func() error { idle++; return nil })
	for _, cq := range cqs {
		check(t, cq.Close())
	}
	if idle != 1 {
		t.Errorf("the Context was idle %d times", idle)
	}
	pd := good(r.c.AllocPD())(t)
	check(t, pd.Close())
	r.c.common.unused, r.c.common.all = nil, nil // so that a channel is created, and closed with the CQ
	r.c.onIdle(func() error { return r.c.closeIdle() })
	if _, err := r.c.CreateCQ(CQConfig{Entries: 1, PD: pd}); !errors.Is(err, ErrClosed) {
		t.Errorf("CreateCQ on a closed PD: %v", err)
	}
}

// TestCommonChannels checks how CQs are distributed over the channels of the Context if there are no more.
func TestCommonChannels(t *testing.T) {
	r := newRig(t)
	limitChannels(t, 0)
	users := map[*CompChannel]int{}
	create := func() *CQ {
		cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
		users[cq.channel]++
		return cq
	}
	var cqs []*CQ
	for range 3*ownChannels - 1 {
		cqs = append(cqs, create())
	}
	if len(users) != ownChannels {
		t.Errorf("%d channels, want %d", len(users), ownChannels)
	}
	for ch, n := range users {
		if n < 2 || n > 3 || n != ch.cqs || n != ch.users {
			t.Errorf("%v has %d CQs, and counts %d and %d", ch, n, ch.cqs, ch.users)
		}
	}
	first := cqs[0].channel
	for _, cq := range cqs {
		if cq.channel == first {
			check(t, cq.Close())
		}
	}
	if cq := create(); cq.channel != first {
		t.Errorf("a new CQ uses %v, and %v has none", cq.channel, first)
	}
}

// TestNoMoreChannels checks that CQs share channels if the process has no file descriptor left.
func TestNoMoreChannels(t *testing.T) {
	r := newRig(t)
	refuse := func(on bool) {
		r.k.Set(func() {
			r.k.Refuse = nil
			if on {
				r.k.Refuse = map[string]unix.Errno{"CREATE_COMP_CHANNEL": unix.EMFILE}
			}
		})
	}
	refuse(true)
	if _, err := r.c.CreateCQ(CQConfig{Entries: 1}); !errors.Is(err, unix.EMFILE) {
		t.Errorf("without a channel: %v, want EMFILE", err)
	}
	refuse(false)
	a := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	refuse(true)
	if b := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t); a.channel != b.channel {
		t.Error("two CQs use two channels")
	}
}

// TestCommonChannelsChurn creates CQs in several goroutines while other creations fail, and give up new channels.
func TestCommonChannelsChurn(t *testing.T) {
	r := newRig(t)
	closed := good(r.c.AllocPD())(t)
	check(t, closed.Close())
	var failing, working sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		failing.Go(func() {
			for !received(stop) {
				if _, err := r.c.CreateCQ(CQConfig{Entries: 1, PD: closed}); !errors.Is(err, ErrClosed) || errors.Is(err, ErrBusy) {
					t.Errorf("on a closed PD: %v", err)
					return
				}
			}
		})
	}
	for range 2 {
		working.Go(func() {
			for range 300 {
				cq, err := r.c.CreateCQ(CQConfig{Entries: 1})
				if err == nil {
					err = cq.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	close(stop)
	failing.Wait()
	if p := &r.c.common; p.creating != 0 || len(p.all) != len(p.unused) {
		t.Errorf("%d channels are being created, %d are used", p.creating, len(p.all)-len(p.unused))
	}
	for _, ch := range r.c.common.all {
		if ch.cqs != 0 || ch.users != 0 {
			t.Errorf("%v has %d CQs, %d users", ch, ch.cqs, ch.users)
		}
	}
}

// TestCommonChannelsAtOnce checks that CQs that are created at the same time have a channel each.
func TestCommonChannelsAtOnce(t *testing.T) {
	r := newRig(t)
	var cqs [8]*CQ
	var creating sync.WaitGroup
	for i := range cqs {
		creating.Go(func() {
			var err error
			if cqs[i], err = r.c.CreateCQ(CQConfig{Entries: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	for i, a := range cqs {
		for _, b := range cqs[:i] {
			if a.channel == b.channel {
				t.Errorf("%v and %v use %v", a, b, a.channel)
			}
		}
	}
}
