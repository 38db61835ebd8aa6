package rdmaaddr

import (
	"testing"

	"github.com/goverbs/goverbs/cm"
)

func TestServer(t *testing.T) {
	for _, c := range []struct{ bind, port, want string }{
		{"10.9.0.1", "7471", "10.9.0.1:7471"},
		{"::0", "7471", "[::]:7471"},
		{"", "7471", "[::]:7471"},
		{"fd00:9::1", "", "[fd00:9::1]:0"},
	} {
		ai, err := Server(t.Context(), c.bind, c.port, cm.AddrInfo{PortSpace: cm.PSTCP})
		if err != nil {
			t.Errorf("%q: %v", c.bind, err)
			continue
		}
		if ai.Src.String() != c.want || ai.Dst.IsValid() || ai.PortSpace != cm.PSTCP {
			t.Errorf("%q: %v from %v, want %s", c.bind, ai, ai.Src, c.want)
		}
	}
}

func TestClient(t *testing.T) {
	ai, err := Client(t.Context(), "10.9.0.1", "", "7471", cm.AddrInfo{Flags: cm.NumericHost})
	if err != nil || ai.Dst.String() != "10.9.0.1:7471" || ai.Src.IsValid() {
		t.Errorf("%v, error %v", ai, err)
	}
	ai, err = Client(t.Context(), "fd00:9::1", "fd00:9::2", "7471", cm.AddrInfo{})
	if err != nil || ai.Dst.String() != "[fd00:9::1]:7471" || ai.Src.String() != "[fd00:9::2]:0" ||
		ai.Flags&cm.Passive != 0 {
		t.Errorf("%v from %v, error %v", ai, ai.Src, err)
	}
	for _, c := range [][2]string{{"fd00:9::1", "10.9.0.1"}, {"10.9.0.1", "no address"}, {"no address", ""}, {"", ""}} {
		if ai, err := Client(t.Context(), c[0], c[1], "7471", cm.AddrInfo{Flags: cm.NumericHost}); err == nil {
			t.Errorf("from %q to %q: %v", c[1], c[0], ai)
		}
	}
}

func TestHost(t *testing.T) {
	for host, want := range map[string]string{"10.9.0.1": "10.9.0.1", "::0": "::", "::ffff:10.9.0.1": "10.9.0.1",
		"fe80::1%lo": "fe80::1%lo"} {
		if a, err := Host(t.Context(), host); err != nil || a.String() != want {
			t.Errorf("%s: %v, error %v", host, a, err)
		}
	}
	if a, err := Host(t.Context(), ""); err != nil || a.IsValid() {
		t.Errorf("no host: %v, error %v", a, err)
	}
}
