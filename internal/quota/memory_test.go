package quota

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestMemoryLimits checks the defaults and the values for no limit.
func TestMemoryLimits(t *testing.T) {
	for _, c := range []struct{ maxMemory, maxPerPeer, memory, need, total, perPeer int64 }{
		{10, 0, 100, 2, 10, 5},
		{10, 0, 100, 7, 10, 7},
		{10, 3, 100, 2, 10, 3},
		{10, -1, 100, 2, 10, -1},
		{-1, 0, 100, 2, -1, -1},
		{-1, 4, 100, 2, -1, 4},
		{0, 0, 100, 2, 100, 50},
		{0, 4, 100, 200, 200, 4},
		{0, 0, 100, 200, 200, 200},
	} {
		total, perPeer := MemoryLimits(c.maxMemory, c.maxPerPeer, c.memory, c.need)
		if total != c.total || perPeer != c.perPeer {
			t.Errorf("%+v: %d and %d", c, total, perPeer)
		}
	}
}

// TestMemoryError checks that the first hundred bytes, which a client reads, have the option and the numbers of a
// machine with a terabyte, and that the text has the longest address, too.
func TestMemoryError(t *testing.T) {
	const tb, used = 1 << 40, 1<<40 - 5000
	kind := errors.New("kind")
	peer := netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666")
	for _, perPeer := range []bool{false, true} {
		e := &Exceeded{Peer: peer, Want: 655360, Used: used, Max: tb, PerPeer: perPeer}
		err := MemoryError(kind, e, "ListenConfig")
		text, _ := strings.CutPrefix(err.Error(), "kind: ")
		name := "ListenConfig.MaxMemory: "
		if perPeer {
			name = "ListenConfig.MaxMemoryPerPeer: "
		}
		for _, part := range []string{name, "655360 bytes", fmt.Sprintf("%d of %d", int64(used), int64(tb))} {
			if !strings.Contains(text[:100], part) {
				t.Errorf("%q lacks %q", text[:100], part)
			}
		}
		if !errors.Is(err, kind) || !strings.Contains(text, peer.String()) {
			t.Errorf("the error is %q", err)
		}
	}
	if other := errors.New("other"); !errors.Is(MemoryError(kind, other, "Options"), other) {
		t.Error("another error is lost")
	}
}
