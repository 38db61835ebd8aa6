package uverbs

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCommonChannels checks how CQs are distributed over the channels of the Context.
func TestCommonChannels(t *testing.T) {
	r := newRig(t)
	users := map[*CompChannel]int{}
	create := func() *CQ {
		cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
		users[cq.channel]++
		return cq
	}
	var cqs []*CQ
	for range 3*maxCommon - 1 {
		cqs = append(cqs, create())
	}
	if len(users) != maxCommon {
		t.Errorf("%d channels, want %d", len(users), maxCommon)
	}
	for ch, n := range users {
		if n < 2 || n > 3 || n != ch.userCount() {
			t.Errorf("%v has %d CQs, and counts %d", ch, n, ch.userCount())
		}
	}
	first := cqs[0].channel
	for _, cq := range cqs {
		if cq.channel == first {
			check(t, cq.Close())
		}
	}
	for range 2 {
		if cq := create(); cq.channel != first {
			t.Errorf("a new CQ uses %v, and %v has none", cq.channel, first)
		}
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
	for _, ch := range r.c.channels {
		if n := ch.userCount(); n != 0 {
			t.Errorf("%v has %d users", ch, n)
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
