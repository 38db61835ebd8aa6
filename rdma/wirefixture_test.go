package rdma

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"
)

// A wire has the bytes of a version of the protocol, by name.
type wire map[string][]byte

// keptWire returns the bytes in a file.
func keptWire(t *testing.T, file string) wire {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	good(t, text, err)
	w := wire{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		b, err := hex.DecodeString(strings.Join(words[2:], ""))
		w[words[0]+" "+words[1]] = good(t, b, err)
	}
	return w
}

// TestWireEncodes checks that this package sends the bytes that are kept.
func TestWireEncodes(t *testing.T) {
	imm := func(k kind, replies, number int, body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, packImm(k, credits{replies: replies}, number)), body...)
	}
	var o [offerLen]byte
	(&offer{length: 5000}).put(&o)
	ofClient, ofServer, ofShared := honestHello(), honestHello(), honestHello()
	ofClient.features, ofServer.features = featureCancel, featureCancel
	ofShared.features = featureCancel | featureWindow
	ofShared.depth, ofShared.fields = 2, windowField(defaultDepth)
	ofClient.data = []byte("eve 1")
	ofServer.depth, ofServer.offers, ofServer.eager, ofServer.maxMessage = 64, 2, 8192, 1<<20
	ofServer.data = []byte("bob")
	token, err := Token{Addr: 0x1122334455667788, Len: 4096, Key: 0xdeadbeef, Rights: allRights}.MarshalBinary()
	want := wire{
		"hello client":  ofClient.bytes(),
		"hello server":  ofServer.bytes(),
		"hello shared":  ofShared.bytes(),
		"frame message": imm(kindMessage, 0, 0, "hi"),
		"frame call":    imm(kindCall, 1, 3, "ask"),
		"frame reply":   imm(kindReply, 0, 0, "yes"),
		"frame offer":   imm(kindOffer, 0, 0, string(o[:])),
		"frame taken":   imm(kindTaken, 0, 0, ""),
		"frame credits": imm(kindCredits, 0, 1, ""),
		"frame end":     imm(kindEnd, 0, 0, string((&farewell{}).appendTo(nil))),
		"frame reason":  imm(kindEnd, 0, 0, string((&farewell{reason: &CloseError{Code: 7, Text: "bye"}}).appendTo(nil))),
		"frame cancel":  imm(kindCancel, 0, 3, ""),
		"token all":     good(t, token, err),
	}
	want.isKept(t, "wire1.txt")
}

// isKept checks that these are the bytes in a file.
func (w wire) isKept(t *testing.T, file string) {
	t.Helper()
	kept := keptWire(t, file)
	if len(kept) != len(w) {
		t.Errorf("%d lines are kept, want %d", len(kept), len(w))
	}
	for name, b := range w {
		if !bytes.Equal(b, kept[name]) {
			t.Errorf("%s: %x is sent, want %x", name, b, kept[name])
		}
	}
}

// TestWireEncodesTrailers is TestWireEncodes with featureTrailers.
func TestWireEncodesTrailers(t *testing.T) {
	imm := func(k kind, number int, body []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, packImm(k, credits{}, number)), body...)
	}
	call := trailer{timeout: 1500 * time.Millisecond, pairs: appendPair(appendPair(nil, "tenant", "blue"), "e", "")}
	timeout := trailer{timeout: time.Hour}
	var o [offerLen]byte
	(&offer{kind: kindCallTrailer, number: 3, length: 5000}).put(&o)
	h := honestHello()
	h.features = featureCancel | featureTrailers
	wire{
		"hello client":   h.bytes(),
		"frame call":     imm(kindCallTrailer, 3, call.appendTo([]byte("ask"))),
		"frame deadline": imm(kindCallTrailer, 3, timeout.appendTo([]byte("ask"))),
		"frame offer":    imm(kindOffer, 0, call.appendTo(o[:])),
		"frame error":    imm(kindError, 3, (&CallError{Code: 105, Text: "no such key"}).bytes(4096)),
	}.isKept(t, "trailers1.txt")
}

// TestWireEncodesReplies is TestWireEncodes with featureReplyTrailers.
func TestWireEncodesReplies(t *testing.T) {
	imm := func(k kind, number int, body []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, packImm(k, credits{}, number)), body...)
	}
	c := &Conn{remote: honestHello()}
	out := (*outgoing)(nil).with("version", "9").with("e", "")
	failure := func(out *outgoing) []byte {
		text, tr := c.encodeError(&CallError{Code: 105, Text: "no such key"}, out)
		return append(text, tr...)
	}
	k, tr, err := c.replyTrailer(out, 3, true)
	good(t, tr, err)
	var o [offerLen]byte
	(&offer{kind: k, number: 3, length: 5000}).put(&o)
	h := honestHello()
	h.features = featureCancel | featureTrailers | featureReplyTrailers
	wire{
		"hello client": h.bytes(),
		"frame reply":  imm(k, 3, append([]byte("yes"), tr...)),
		"frame offer":  imm(kindOffer, 0, append(o[:], tr...)),
		"frame error":  imm(kindError, 3, failure(nil)),
		"frame both":   imm(kindError, 3, failure(out)),
	}.isKept(t, "replies1.txt")
}
