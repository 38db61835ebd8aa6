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

// Which requests for QPs a server accepts.
func TestSameClient(t *testing.T) {
	here, there := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	ours, c := requester{here, clientTag{run: 7, control: true}}, requester{addr: here}
	for name, of := range map[string]struct {
		client, qp requester
		want       bool
	}{
		"ours":                          {ours, requester{here, clientTag{run: 7}}, true},
		"ours of another host":          {ours, requester{there, clientTag{run: 7}}, false},
		"ours of another run":           {ours, requester{here, clientTag{run: 9}}, false},
		"ours, to agree":                {ours, requester{here, clientTag{run: 9, control: true}}, false},
		"C's, and the client is ours":   {ours, c, false},
		"C's":                           {c, c, true},
		"C's of another host":           {c, requester{addr: there}, false},
		"ours, and the client is C's":   {c, requester{here, clientTag{run: 9}}, false},
		"ours to agree, where C's is":   {c, requester{here, clientTag{run: 9, control: true}}, false},
		"another's that looks like C's": {c, requester{here, parseTag([]byte("somebody's data"))}, true},
	} {
		if got := of.client.sameClient(of.qp); got != of.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestClientTag(t *testing.T) {
	for _, m := range []clientTag{{run: 7}, {run: 1<<63 | 5, control: true}} {
		padded := append(m.bytes(), make([]byte, 20)...)
		if d := cmp.Diff(m, parseTag(padded), cmp.AllowUnexported(clientTag{})); d != "" || len(m.bytes()) > 56 {
			t.Errorf("(-want +got)\n%s", d)
		}
		for n := range m.bytes() {
			if got := parseTag(padded[:n]); got != (clientTag{}) {
				t.Errorf("%d bytes: %+v", n, got)
			}
		}
	}
}

// A rejection by a server of this program that is busy ends a client's attempts;
// another rejection does not.
func TestBusy(t *testing.T) {
	tries := 0
	_, err := retryRefused(t.Context(), func() (int, error) {
		tries++
		return 0, asBusy(&cm.Error{Kind: cm.ErrRejected, Errno: 111, PrivateData: append([]byte(busyText), 0, 0)})
	})
	if tries != 1 || err != errBusy || !strings.Contains(err.Error(), "-p at the peer: the server has another client") {
		t.Errorf("%d tries: %v", tries, err)
	}
	other := &cm.Error{Kind: cm.ErrRejected, Errno: 111}
	if err := asBusy(other); !errors.Is(err, cm.ErrRejected) || !cmp.Equal(err, error(other), cmpopts.EquateErrors()) {
		t.Error(err)
	}
	if asBusy(nil) != nil {
		t.Error("success is refused")
	}
}
