package rdma

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/goverbs/goverbs/verbstest"
)

// FuzzTrailer checks that what cutTrailer accepts is within the limits, and that it is read in the same way again.
func FuzzTrailer(f *testing.F) {
	for _, b := range badTrailers() {
		f.Add(b)
	}
	t := trailer{timeout: time.Second, pairs: appendPair(nil, "key", "value")}
	f.Add(t.appendTo([]byte("body")))
	t = trailer{code: 105, pairs: t.pairs}
	f.Add(t.appendTo([]byte("text")))
	f.Add(trailed("body", field(200, 1, 2, 3)))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, got, err := cutTrailer(b)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Error(err)
			}
			return
		}
		size := 0
		pairs := decodePairs(got.pairs)
		for key, value := range pairs {
			size += len(key) + len(value)
			if key == "" || len(key) > maxKey || !utf8.ValidString(key) {
				t.Errorf("the key %q", key)
			}
		}
		if len(pairs) > maxPairs || size > maxMetadata || got.timeout < 0 || len(body)+trailerLen > len(b) {
			t.Errorf("%d pairs with %d bytes, a timeout of %v, a body of %d bytes of %d", len(pairs), size, got.timeout,
				len(body), len(b))
		}
		if len(got.appendTo(nil)) != got.size() && got.size() > 0 {
			t.Errorf("%d bytes, want %d", len(got.appendTo(nil)), got.size())
		}
		if len(got.appendTo(nil)) > maxTrailer {
			return // it has fields that this package does not know
		}
		again, same, err := cutTrailer(got.appendTo(bytes.Clone(body)))
		if err != nil || !bytes.Equal(again, body) || same.timeout != got.timeout || same.code != got.code {
			t.Errorf("%q, %+v, %v", again, same, err)
		}
	})
}

// FuzzCallError checks that what parseCallError accepts is within the limits, and that bytes returns it.
func FuzzCallError(f *testing.F) {
	f.Add((&CallError{Code: 105, Text: "no such key"}).bytes(4096))
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseCallError(b)
		switch {
		case err != nil && !errors.Is(err, ErrProtocol):
			t.Error(err)
		case err == nil && !bytes.Equal(e.bytes(4096), b):
			t.Errorf("%x is %+v, and that %x", b, e, e.bytes(4096))
		}
	})
}

// FuzzCaller has a connection that handles calls get what bytes say: each SEND has a byte with its kind and number, one
// with the length of its body, and the body. Handlers use all that they get, and a call waits for a reply in a buffer.
// Whatever comes, both return when the connection ends.
func FuzzCaller(f *testing.F) {
	add := func(first byte, body []byte) []byte { return append([]byte{first, byte(len(body))}, body...) }
	call := (&trailer{timeout: time.Second, pairs: appendPair(nil, "key", "value")}).appendTo([]byte("body"))
	var o [offerLen]byte
	(&offer{kind: kindCallTrailer, number: 3, length: 5000}).put(&o)
	pair := field(fieldMetadata, 3, 'k', 'e', 'y', 'v')
	f.Add(append(add(0x91, call), add(0x92, call)...))
	f.Add(append(add(0xa0, trailed("text", codeField(105), pair)), add(0xa1, nil)...))
	f.Add(append(add(0xa0, trailed("body", pair)), add(0x20, nil)...))
	var r [offerLen]byte
	(&offer{kind: kindReplyTrailer, length: 5000}).put(&r)
	f.Add(add(0x30, trailed(string(r[:]), pair)))
	f.Add(add(0x30, append(o[:], call[4:]...)))
	f.Add(append(add(0x91, call), add(0x71, nil)...))
	f.Fuzz(func(t *testing.T, script []byte) {
		n := verbstest.NewNetwork(t)
		n.Allow(verbstest.RemoteAccess, verbstest.ReceiveLate, verbstest.ReceiveLength, verbstest.BadRequest,
			verbstest.CQCapacity, verbstest.Unsignaled)
		c, h := hostileOn(t, n.Machine(), n.Machine(), &Options{Linger: -1, Depth: 4}, honestHello())
		ended, called := make(chan error, 1), make(chan error, 1)
		go func() {
			ended <- c.Handle(h.ctx, func(ctx context.Context, r *Request) ([]byte, error) {
				if _, ok := ctx.Deadline(); ok && len(r.Metadata()) > maxPairs {
					t.Error("too much metadata")
				}
				return r.Bytes(), errors.Join(ctx.Err(), r.SetReplyMetadata("key", "value"))
			}, nil)
		}()
		go func() {
			b, err := c.Alloc(5000)
			if err != nil {
				called <- err
				return
			}
			m, err := c.CallInto(WithMetadata(h.ctx, "key", "value"), nil, b)
			if err == nil {
				m.Release()
			}
			var e *CallError
			if len(m.Metadata()) > maxPairs || errors.As(err, &e) && len(e.Metadata()) > maxPairs {
				t.Error("too much metadata of a reply")
			}
			called <- err
		}()
		for len(script) >= 2 {
			body := script[2:min(2+int(script[1]), len(script))]
			if !h.send(kind(script[0]>>4), 0, int(script[0]&0xf), body) {
				break
			}
			script = script[2+len(body):]
		}
		h.end(farewell{})
		if err := h.conn.ID().ID.Disconnect(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil && !errors.Is(err, ErrDisconnected) {
			t.Errorf("Handle returns %v", err)
		}
		var e *CallError
		if err := <-called; err != nil && !errors.Is(err, ErrDisconnected) && !errors.As(err, &e) && err != io.EOF &&
			!errors.Is(err, ErrTooLong) {
			t.Errorf("CallInto returns %v", err)
		}
	})
}
