package perftest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goverbs/goverbs/cm"
)

// Whose requests for QPs a server takes, and whose not.
func TestStrangers(t *testing.T) {
	here, there := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	ours, c := caller{here, mark{run: 7, control: true}}, caller{addr: here}
	for name, of := range map[string]struct {
		client, qp caller
		want       bool
	}{
		"ours":                          {ours, caller{here, mark{run: 7}}, true},
		"ours of another host":          {ours, caller{there, mark{run: 7}}, false},
		"ours of another run":           {ours, caller{here, mark{run: 9}}, false},
		"ours, to agree":                {ours, caller{here, mark{run: 9, control: true}}, false},
		"C's, and the client is ours":   {ours, c, false},
		"C's":                           {c, c, true},
		"C's of another host":           {c, caller{addr: there}, false},
		"ours, and the client is C's":   {c, caller{here, mark{run: 9}}, false},
		"ours to agree, where C's is":   {c, caller{here, mark{run: 9, control: true}}, false},
		"another's that looks like C's": {c, caller{here, markOf([]byte("somebody's data"))}, true},
	} {
		if got := of.client.connects(of.qp); got != of.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMark(t *testing.T) {
	for _, m := range []mark{{run: 7}, {run: 1<<63 | 5, control: true}} {
		padded := append(m.bytes(), make([]byte, 20)...)
		if d := cmp.Diff(m, markOf(padded), cmp.AllowUnexported(mark{})); d != "" || len(m.bytes()) > 56 {
			t.Errorf("(-want +got)\n%s", d)
		}
		for n := range m.bytes() {
			if got := markOf(padded[:n]); got != (mark{}) {
				t.Errorf("%d bytes: %+v", n, got)
			}
		}
	}
}

// A refusal of a server of this program ends a client's tries; another does not.
func TestRefused(t *testing.T) {
	tries := 0
	_, err := again(t.Context(), func() (int, error) {
		tries++
		return 0, refused(&cm.Error{Kind: cm.ErrRejected, Errno: 111, PrivateData: append([]byte(busyWords), 0, 0)})
	})
	if tries != 1 || err != errBusy || !strings.Contains(err.Error(), "-p at the peer: the server has another client") {
		t.Errorf("%d tries: %v", tries, err)
	}
	other := &cm.Error{Kind: cm.ErrRejected, Errno: 111}
	if err := refused(other); !errors.Is(err, cm.ErrRejected) || !cmp.Equal(err, error(other), cmpopts.EquateErrors()) {
		t.Error(err)
	}
	if refused(nil) != nil {
		t.Error("success is refused")
	}
}
