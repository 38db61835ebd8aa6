package rdma

import (
	"context"
	"testing"
	"time"
)

// newChoice returns a client of two rails whose slots have links.
func newChoice() *Client[int] {
	cl := NewClient("first:1", &ClientOptions[int]{Rails: []Rail{{Addr: "second:1"}}})
	for i := range cl.slots {
		cl.slots[i].link = &link[int]{users: 1, place: place{node: -1}}
	}
	return cl
}

// TestRailTurn checks that two calls that begin at the same time choose different rails.
func TestRailTurn(t *testing.T) {
	cl := newChoice()
	first, second := cl.next.Add(1), cl.next.Add(1)
	a, _ := cl.best(first, false)
	if b, _ := cl.best(second, false); a == b {
		t.Error("both calls have chosen the same rail")
	}
}

// TestRailProbe checks that one call uses a rail when its doubt has ended, and others while that call waits do not.
func TestRailProbe(t *testing.T) {
	cl := newChoice()
	cl.options.MaxBackoff = time.Hour
	doubted := &cl.slots[1]
	doubted.called(0, context.DeadlineExceeded, time.Hour)
	for turn := range uint32(4) {
		if s, _ := cl.best(turn, false); s == doubted {
			t.Error("a call has chosen a rail in doubt")
		}
	}
	doubted.doubted.Store(time.Now().Add(-time.Second).UnixNano())
	probes := 0
	for turn := range uint32(10) {
		if s, _ := cl.best(turn, false); s == doubted {
			probes++
		}
	}
	if probes != 1 {
		t.Errorf("%d calls have chosen a rail after its doubt", probes)
	}
	doubted.called(0, nil, time.Hour)
	for turn := range uint32(10) {
		if s, _ := cl.best(turn, false); s == doubted {
			probes++
		}
	}
	if probes != 6 {
		t.Errorf("%d of 10 calls have chosen a rail after a call that has succeeded", probes-1)
	}
}

// TestPauseAfterLongAttempts has attempts last longer than MaxBackoff. The pause grows, unless there was none for so
// long.
func TestPauseAfterLongAttempts(t *testing.T) {
	cl := NewClient[int]("first:1", nil)
	var b backoff
	for i, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000} {
		b.next = time.Now().Add(-time.Hour)
		cl.attempted(&b, b.next, ErrDisconnected, false)
		if want *= time.Millisecond; b.wait != want || time.Until(b.next) > want {
			t.Errorf("attempt %d: the pause is %v, want %v", i, b.wait, want)
		}
	}
	b.next = time.Now().Add(-time.Hour)
	cl.attempted(&b, time.Now(), ErrDisconnected, false)
	if b.wait != cl.options.MinBackoff {
		t.Errorf("after an hour, the pause is %v", b.wait)
	}
}
