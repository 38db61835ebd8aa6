package rdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// codeField returns the field of a trailer with the code of an error.
func codeField(code uint32) []byte {
	return field(fieldCode, binary.LittleEndian.AppendUint32(nil, code)...)
}

// breaksCall checks that what a peer does after a call is against the protocol.
func breaksCall(t *testing.T, hi hello, attack func(h *hostile)) {
	t.Helper()
	c, h := hostilePair(t, nil, hi)
	called := make(chan error, 1)
	go func() { _, err := c.Call(h.ctx, []byte("call")); called <- err }()
	if k, number, body := h.recv(); k.base() != kindCall || number != 0 || !bytes.HasPrefix(body, []byte("call")) {
		t.Fatalf("kind %d, number %d, %q", k, number, body)
	}
	attack(h)
	if err := <-called; !errors.Is(err, ErrProtocol) {
		t.Errorf("Call returns %v", err)
	}
}

// TestHostileReplyTrailers checks that the connection ends if the trailer of a reply is wrong, behind the reply or
// an offer of one.
func TestHostileReplyTrailers(t *testing.T) {
	t.Parallel()
	bad := badTrailers()
	for name, b := range map[string][]byte{
		"no code":         trailed("x", codeField(0)),
		"short code":      trailed("x", field(fieldCode, 1)),
		"two codes":       trailed("x", codeField(1), codeField(2)),
		"timeout":         trailed("x", field(fieldTimeout, 1, 0, 0, 0, 0, 0, 0, 0)),
		"error not UTF-8": trailed("\xff", codeField(1)),
		"long error":      trailed(strings.Repeat("x", maxErrorText+1), codeField(1)),
	} {
		bad[name] = b
	}
	for name, b := range bad {
		t.Run(name+"/reply", func(t *testing.T) {
			breaksCall(t, honestHello(), func(h *hostile) { h.send(kindReplyTrailer, 0, 0, b) })
		})
		t.Run(name+"/offer", func(t *testing.T) {
			var o [offerLen]byte
			(&offer{kind: kindReplyTrailer, length: 5000}).put(&o)
			breaksCall(t, honestHello(), func(h *hostile) {
				h.send(kindOffer, 0, 0, append(o[:], bytes.TrimPrefix(b, []byte("x"))...))
			})
		})
	}
	old := honestHello()
	old.features &^= featureReplyTrailers
	var o [offerLen]byte
	(&offer{kind: kindReplyTrailer, length: 5000}).put(&o)
	for name, attack := range map[string]func(h *hostile){
		"offer without the feature": func(h *hostile) { h.send(kindOffer, 0, 0, trailed(string(o[:]))) },
		"offer of an error":         func(h *hostile) { h.send(kindOffer, 0, 0, trailed(string(o[:]), codeField(1))) },
		"offer without a trailer":   func(h *hostile) { h.send(kindOffer, 0, 0, o[:]) },
		"call with a code":          func(h *hostile) { h.send(kindCallTrailer, 0, 0, trailed("x", codeField(1))) },
		"reply to another call":     func(h *hostile) { h.send(kindReplyTrailer, 0, 1, trailed("x")) },
	} {
		hi := honestHello()
		if strings.Contains(name, "feature") {
			hi = old
		}
		t.Run(name, func(t *testing.T) { breaksCall(t, hi, attack) })
	}
}

// TestReplyTrailerKept checks that what the trailer of a reply had is that of its reply, also when its memory is used
// again.
func TestReplyTrailerKept(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	unknown, pair := field(200, 1, 2, 3), field(fieldMetadata, 3, 'k', 'e', 'y', 'v')
	for _, r := range []struct {
		body string
		code uint32
		want map[string]string
	}{{"body", 0, map[string]string{"key": "v"}}, {"", 0, nil}, {"text", 105, map[string]string{"key": "v"}}} {
		called := make(chan error, 1)
		var m Message
		go func() { var err error; m, err = c.Call(h.ctx, []byte("call")); called <- err }()
		for k := kindCredits; k.base() != kindCall; {
			k, _, _ = h.recv()
		}
		fields := [][]byte{unknown}
		if r.code > 0 {
			fields = append(fields, codeField(r.code))
		}
		if r.want != nil {
			fields = append(fields, pair)
		}
		h.send(kindReplyTrailer, 0, 0, trailed(r.body, fields...))
		err := <-called
		var e *CallError
		if got := m.Metadata(); errors.As(err, &e) {
			if e.Code != Code(r.code) || e.Text != r.body || !maps.Equal(e.Metadata(), r.want) {
				t.Errorf("%+v with %v", e, e.Metadata())
			}
		} else if good(t, m, err); string(m.Bytes()) != r.body || !maps.Equal(got, r.want) || r.code > 0 {
			t.Errorf("%q with %v, want %+v", m.Bytes(), got, r)
		}
		m.Release()
	}
}

// TestOldCallerMetadata checks what callers of earlier versions get of replies with metadata: the reply, and the error.
func TestOldCallerMetadata(t *testing.T) {
	hi := honestHello()
	hi.features &^= featureReplyTrailers
	c, h := hostilePair(t, nil, hi)
	handled := handledBy(h.ctx, c, func(_ context.Context, r *Request) ([]byte, error) {
		if err := r.SetReplyMetadata("key", "value"); err != nil {
			return nil, err
		}
		if len(r.Bytes()) > 1 {
			return nil, &CallError{Code: 105, Text: "no"}
		}
		return []byte("yes"), nil
	}, 1)
	want := []struct {
		kind kind
		body []byte
	}{{kindReply, []byte("yes")}, {kindError, (&CallError{Code: 105, Text: "no"}).bytes(4096)}}
	for i, w := range want {
		if !h.post(uverbs.OpSendImm, packImm(kindCall, credits{replies: 1}, i), make([]byte, 1+i)) {
			t.Fatal("the call is not sent")
		}
		k, number, body := h.recv()
		for k == kindCredits {
			k, number, body = h.recv()
		}
		if k != w.kind || number != i || !bytes.Equal(body, w.body) {
			t.Errorf("kind %d, number %d, %q, want %d with %q", k, number, body, w.kind, w.body)
		}
	}
	h.end(farewell{})
	if err := <-handled; err != nil {
		t.Error(err)
	}
}
