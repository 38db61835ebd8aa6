package onesided

import (
	"net/http"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// TestDC runs the tests with dynamically connected transport.
func TestDC(t *testing.T) {
	service = "dc"
	defer func() { service = "" }()
	for name, test := range map[string]func(*testing.T){
		"PutGet": TestPutGet, "Ranges": TestRanges, "Concurrent": TestConcurrent, "NoDevice": TestNoDevice,
		"ForeignServer": TestForeignServer, "Checksum": TestChecksum, "LinkReturned": TestLinkReturned,
		"Cancel": TestCancel, "Repeated": TestRepeated, "CancelEnds": TestCancelEnds, "LossAndDelay": TestLossAndDelay,
		"Lies": TestLies, "Stale": TestStale, "ClientKilled": TestClientKilled, "ServerKilled": TestServerKilled,
		"Removal": TestRemoval,
	} {
		t.Run(name, test)
	}
}

// TestDCKeys checks that a server refuses a token with another key than the DCT's, and that it has
// as many DCIs as requests at a time, with any number of links.
func TestDCKeys(t *testing.T) {
	service = "dc"
	defer func() { service = "" }()
	r := newRig(t)
	r.net.Allow(verbstest.QKey)
	data := randomBytes(10000)
	for range 3 {
		r.byRDMA(r.put("a", data), len(data))
		r.transport.Close()
	}
	if links, dcis := len(r.handler.links.byPeer), len(r.handler.Pool.dcis); links != 3 || dcis != 1 {
		t.Errorf("the server has %d links and %d DCIs, want 3 and 1", links, dcis)
	}
	honest := r.transport.Base
	r.transport.Base = tap{RoundTripper: honest, request: func(t Token) string {
		t.Peer = strings.Repeat("0", 16) + t.Peer[16:]
		return t.String()
	}}
	r.byRDMA(r.get("a", data), -1)
	r.transport.Base = honest
	r.byRDMA(r.get("a", data), len(data))
	r.allFree()
}

// TestPeerOfDC parses the addresses of DCTs.
func TestPeerOfDC(t *testing.T) {
	const local = ":0000:000123:a1b2c3:00000000000000000000ffff0a090001:5:16"
	key, remote, err := parseDCT("0123456789abcdef" + local)
	if err != nil || key != 0x123456789abcdef || remote.QPN != 0x123 {
		t.Errorf("%#x, %v (%v)", key, remote, err)
	}
	for _, bad := range []string{"", "0123456789abcdef", "123456789abcdef" + local, "x123456789abcdef" + local,
		"+123456789abcdef" + local, "0123456789abcdef" + local[1:]} {
		if _, _, err := parseDCT(bad); err == nil {
			t.Errorf("parseDCT(%q) returns no error", bad)
		}
	}
}

// TestUnknownService has a Service that does not exist.
func TestUnknownService(t *testing.T) {
	service = "xrc"
	defer func() { service = "" }()
	r := newRig(t)
	if _, err := r.do(r.ctx, http.MethodGet, "a", nil); err == nil || !strings.Contains(err.Error(), "xrc") {
		t.Errorf("%v, want an error that names the service", err)
	}
	r.allFree()
}
