package quota

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

var a, b = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

// acquire checks that a peer gets n, or that a limit of the given kind forbids it.
func acquire(t *testing.T, l *Limit, peer netip.Addr, n int64, want *Exceeded) {
	t.Helper()
	err := l.Acquire(peer, n)
	var got *Exceeded
	switch {
	case want == nil && err != nil:
		t.Errorf("%d for %s: %v", n, peer, err)
	case want != nil && (!errors.As(err, &got) || *got != *want):
		t.Errorf("%d for %s: %v, want %v", n, peer, err, want)
	}
}

func TestLimits(t *testing.T) {
	l := New(10, 6)
	acquire(t, l, a, 6, nil)
	acquire(t, l, a, 1, &Exceeded{Peer: a, Want: 1, Used: 6, Max: 6, PerPeer: true})
	acquire(t, l, b, 5, &Exceeded{Peer: b, Want: 5, Used: 6, Max: 10})
	acquire(t, l, b, 4, nil)
	acquire(t, l, b, 1, &Exceeded{Peer: b, Want: 1, Used: 10, Max: 10})
	acquire(t, l, b, math.MaxInt64, &Exceeded{Peer: b, Want: math.MaxInt64, Used: 4, Max: 6, PerPeer: true})
	l.Release(a, 6)
	acquire(t, l, b, 2, nil)
	if own, all := l.Used(b); own != 6 || all != 6 {
		t.Errorf("%d and %d in use, want 6 and 6", own, all)
	}
	l.Release(b, 1)
	l.Release(b, 5)
	acquire(t, l, a, 0, nil)
	if len(l.peers) != 0 {
		t.Errorf("%d peers remain that use nothing", len(l.peers))
	}
}

// TestOneLimit checks a Limit with one of its limits, and without any.
func TestOneLimit(t *testing.T) {
	all, each := New(2, 0), New(-1, 2)
	acquire(t, all, a, 2, nil)
	acquire(t, all, b, 1, &Exceeded{Peer: b, Want: 1, Used: 2, Max: 2})
	acquire(t, each, a, 2, nil)
	acquire(t, each, b, 2, nil)
	acquire(t, each, b, 1, &Exceeded{Peer: b, Want: 1, Used: 2, Max: 2, PerPeer: true})
	none := New(0, -1)
	if none != nil {
		t.Error("a Limit without limits is not nil")
	}
	acquire(t, none, a, math.MaxInt64, nil)
	acquire(t, none, a, math.MaxInt64, nil)
	none.Release(a, 1)
	if own, all := none.Used(a); own != 0 || all != 0 {
		t.Error("a nil Limit counts")
	}
}

// TestOnePeer checks that the forms of one address are one peer.
func TestOnePeer(t *testing.T) {
	l := New(0, 2)
	acquire(t, l, a, 1, nil)
	acquire(t, l, netip.MustParseAddr("::ffff:192.0.2.1"), 1, nil)
	acquire(t, l, a, 1, &Exceeded{Peer: a, Want: 1, Used: 2, Max: 2, PerPeer: true})
	local := netip.MustParseAddr("fe80::1")
	acquire(t, l, local.WithZone("eth0"), 1, nil)
	acquire(t, l, local.WithZone("eth1"), 1, nil)
	acquire(t, l, local, 1, &Exceeded{Peer: local, Want: 1, Used: 2, Max: 2, PerPeer: true})
	acquire(t, l, netip.Addr{}, 2, nil) // an address that is not known
}

func TestText(t *testing.T) {
	l := New(1<<20, 4096)
	acquire(t, l, a, 4000, nil)
	for _, part := range []string{"192.0.2.1", "4000", "4096", "97", "one address"} {
		if text := l.Acquire(a, 97).Error(); !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	full := New(7, 0)
	acquire(t, full, a, 7, nil)
	for _, part := range []string{"192.0.2.2", "7", "3"} {
		if text := full.Acquire(b, 3).Error(); !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

// TestMisuse checks that calls that do not match are found.
func TestMisuse(t *testing.T) {
	for name, call := range map[string]func(*Limit){
		"a negative acquire":   func(l *Limit) { _ = l.Acquire(a, -1) },
		"a negative release":   func(l *Limit) { l.Release(a, -1) },
		"a release of another": func(l *Limit) { l.Release(b, 1) },
		"too much":             func(l *Limit) { l.Release(a, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New(5, 5)
			acquire(t, l, a, 2, nil)
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
				if own, all := l.Used(a); own != 2 || all != 2 {
					t.Errorf("%d and %d in use, want 2 and 2", own, all)
				}
			}()
			call(l)
		})
	}
}

// TestRace checks concurrent use: the limits hold, and nothing remains.
func TestRace(t *testing.T) {
	const total, each = 7, 4
	l := New(total, each)
	var group sync.WaitGroup
	for _, peer := range []netip.Addr{a, a, a, b, b, b} {
		group.Go(func() {
			for range 2000 {
				if l.Acquire(peer, 2) != nil {
					continue
				}
				if own, all := l.Used(peer); own > each || all > total {
					t.Errorf("%d and %d in use, want %d and %d at most", own, all, each, total)
				}
				l.Release(peer, 2)
			}
		})
	}
	group.Wait()
	if len(l.peers) != 0 || l.used != 0 {
		t.Errorf("%v and %d remain", l.peers, l.used)
	}
}
