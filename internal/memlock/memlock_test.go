package memlock

import "testing"

// TestParse checks whom the limit concerns.
func TestParse(t *testing.T) {
	const status = "Name:\tx\nVmPin:\t       8 kB\nCapInh:\t0\nCapEff:\t"
	for _, c := range []struct {
		caps, uidMap string
		want         State
	}{
		{"000001ffffffffff", "         0          0 4294967295\n", State{Limit: 1, Pinned: 8192, Exempt: true}},
		{"0000000000004000", "0 0 4294967295\n", State{Limit: 1, Pinned: 8192, Exempt: true}},
		{"0000000000000000", "0 0 4294967295\n", State{Limit: 1, Pinned: 8192}},
		{"000001ffffffffff", "0 1000 1\n", State{Limit: 1, Pinned: 8192, InUserNS: true}},
		{"000001ffffffffff", "0 100000 65536\n65536 0 1\n", State{Limit: 1, Pinned: 8192, InUserNS: true}},
	} {
		if got := parse(1, status+c.caps+"\n", c.uidMap); got != c.want {
			t.Errorf("CapEff %s, uid_map %q: %+v, want %+v", c.caps, c.uidMap, got, c.want)
		}
	}
	if got := parse(1, "", ""); got != (State{Limit: 1}) {
		t.Errorf("without /proc: %+v", got)
	}
}
