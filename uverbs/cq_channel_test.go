package uverbs

import (
	"errors"
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
