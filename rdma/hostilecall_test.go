package rdma

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// field returns an encoded field of a trailer.
func field(kind byte, b ...byte) []byte {
	return append([]byte{kind, byte(len(b)), byte(len(b) >> 8)}, b...)
}

// trailed returns a body with a trailer of the given fields behind it.
func trailed(body string, fields ...[]byte) []byte {
	b := bytes.Join(fields, nil)
	return append(append([]byte(body), b...), byte(len(b)), byte(len(b)>>8))
}

// badTrailers are what no peer with this package sends behind a body.
func badTrailers() map[string][]byte {
	second := []byte{0, 0, 0, 0, 1, 0, 0, 0}
	pairs := func(n, size int) (b []byte) {
		for range n {
			b = append(b, field(fieldMetadata, append([]byte{1}, make([]byte, size)...)...)...)
		}
		return b
	}
	return map[string][]byte{
		"nothing":          nil,
		"half a length":    {0},
		"long fields":      {1, 0, 3, 0},
		"most fields":      append(make([]byte, 2000), 0xd0, 7),
		"half a field":     trailed("x", []byte{fieldTimeout, 8}),
		"long field":       trailed("x", []byte{fieldTimeout, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8}),
		"short timeout":    trailed("x", field(fieldTimeout, 1, 2, 3, 4)),
		"no timeout":       trailed("x", field(fieldTimeout, make([]byte, 8)...)),
		"negative timeout": trailed("x", field(fieldTimeout, 0, 0, 0, 0, 0, 0, 0, 0x80)),
		"two timeouts":     trailed("x", field(fieldTimeout, second...), field(fieldTimeout, second...)),
		"no key":           trailed("x", field(fieldMetadata)),
		"empty key":        trailed("x", field(fieldMetadata, 0, 'v')),
		"long key":         trailed("x", field(fieldMetadata, 3, 'k')),
		"key not in UTF-8": trailed("x", field(fieldMetadata, 1, 0xff)),
		"pairs":            trailed("x", pairs(17, 1)),
		"metadata":         trailed("x", pairs(2, 513)),
	}
}

// TestHostileTrailers checks that the connection ends if a trailer is wrong, behind a call or an offer of one.
func TestHostileTrailers(t *testing.T) {
	t.Parallel()
	for name, b := range badTrailers() {
		for where, attack := range map[string]func(h *hostile){
			"call": func(h *hostile) { h.send(kindCallTrailer, 0, 0, b) },
			"offer": func(h *hostile) {
				var o [offerLen]byte
				(&offer{kind: kindCallTrailer, length: 5000}).put(&o)
				h.send(kindOffer, 0, 0, append(o[:], bytes.TrimPrefix(b, []byte("x"))...))
			},
		} {
			t.Run(name+"/"+where, func(t *testing.T) { breaks(t, honestHello(), attack) })
		}
	}
}

// breaks checks that what a peer does is against the protocol.
func breaks(t *testing.T, hi hello, attack func(h *hostile)) {
	t.Helper()
	c, h := hostilePair(t, nil, hi)
	attack(h)
	if _, err := c.Recv(h.ctx); !errors.Is(err, ErrProtocol) {
		t.Errorf("Recv returns %v", err)
	}
}

// TestHostileVariants checks calls with trailers and errors of calls where they may not be.
func TestHostileVariants(t *testing.T) {
	t.Parallel()
	old := honestHello()
	old.features &^= featureTrailers
	call, failure := trailed("x"), (&CallError{Code: 1}).bytes(4096)
	withTrailer := func(k kind) []byte {
		var o [offerLen]byte
		(&offer{kind: k, length: 5000}).put(&o)
		return trailed(string(o[:]))
	}
	for name, c := range map[string]struct {
		hello  hello
		attack func(h *hostile)
	}{
		"call without the feature":  {old, func(h *hostile) { h.send(kindCallTrailer, 0, 0, call) }},
		"offer without the feature": {old, func(h *hostile) { h.send(kindOffer, 0, 0, withTrailer(kindCallTrailer)) }},
		"error without the feature": {old, func(h *hostile) { h.send(kindError, 0, 0, failure) }},
		"offer without a trailer": {honestHello(), func(h *hostile) {
			h.offer(offer{kind: kindCallTrailer, length: 5000}, 0)
		}},
		"offer of a plain call": {honestHello(), func(h *hostile) { h.send(kindOffer, 0, 0, withTrailer(kindCall)) }},
		"offer of a reply":      {honestHello(), func(h *hostile) { h.send(kindOffer, 0, 0, withTrailer(kindReply)) }},
		"offer of an error":     {honestHello(), func(h *hostile) { h.send(kindOffer, 0, 0, withTrailer(kindError)) }},
		"offer of a variant":    {honestHello(), func(h *hostile) { h.send(kindOffer, 0, 0, withTrailer(variant)) }},
		"message":               {honestHello(), func(h *hostile) { h.send(variant, 0, 0, call) }},
		"another variant":       {honestHello(), func(h *hostile) { h.send(kindOffer|variant, 0, 0, call) }},
		"error of no call":      {honestHello(), func(h *hostile) { h.send(kindError, 0, 0, failure) }},
		"same call": {honestHello(), func(h *hostile) {
			_ = h.send(kindCallTrailer, 0, 7, trailed("")) && h.send(kindCall, 0, 7, nil)
		}},
		"after the end": {honestHello(), func(h *hostile) { h.end(farewell{}); h.send(kindCallTrailer, 0, 0, call) }},
	} {
		t.Run(name, func(t *testing.T) {
			conn, h := hostilePair(t, nil, c.hello)
			c.attack(h)
			var err error
			for err == nil {
				_, err = conn.Recv(h.ctx)
			}
			if name != "after the end" && !errors.Is(err, ErrProtocol) {
				t.Errorf("Recv returns %v", err)
			}
		})
	}
}

// TestHostileErrors checks that the connection ends if an error of a call is wrong, from a peer without trailers of
// replies.
func TestHostileErrors(t *testing.T) {
	t.Parallel()
	old := honestHello()
	old.features &^= featureReplyTrailers
	for name, b := range map[string][]byte{
		"nothing":   nil,
		"short":     {1, 0, 0},
		"no code":   {0, 0, 0, 0, 'x'},
		"not UTF-8": {1, 0, 0, 0, 0xff},
		"long":      append([]byte{1, 0, 0, 0}, strings.Repeat("x", maxErrorText+1)...),
	} {
		t.Run(name, func(t *testing.T) {
			breaksCall(t, old, func(h *hostile) { h.send(kindError, 0, 0, b) })
		})
	}
}

// TestTrailerKept checks that what a trailer had is that of its call, also when the peer has used its memory again.
func TestTrailerKept(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	unknown := field(200, 1, 2, 3)
	pair := field(fieldMetadata, 3, 'k', 'e', 'y', 'v')
	again := field(fieldMetadata, 3, 'k', 'e', 'y', 'w')
	hour := field(fieldTimeout, 0, 0x80, 0x2e, 0x0d, 0xf4, 0x6a, 0, 0) // more than an hour
	h.send(kindCallTrailer, 0, 3, trailed("body", unknown, pair, hour, unknown, again))
	h.send(kindCallTrailer, 0, 4, trailed("", hour))
	h.send(kindCallTrailer, 0, 5, trailed("none"))
	for _, want := range []struct {
		body     string
		deadline bool
		metadata map[string]string
	}{{"body", true, map[string]string{"key": "w"}}, {"", true, nil}, {"none", false, nil}} {
		m, err := c.Recv(h.ctx)
		if good(t, m, err); string(m.Bytes()) != want.body {
			t.Errorf("the body is %q, want %q", m.Bytes(), want.body)
		}
		clear(m.Bytes())
		deadline, ok := m.Context().Deadline()
		if ok != want.deadline || ok && time.Until(deadline) < time.Hour {
			t.Errorf("%q: the deadline is %v", want.body, deadline)
		}
		if !maps.Equal(m.Metadata(), want.metadata) {
			t.Errorf("%q: the metadata is %v", want.body, m.Metadata())
		}
		m.Release()
	}
}

// TestDeadlineAlone checks that a context ends at the deadline of the peer, which sends nothing more.
func TestDeadlineAlone(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	h.send(kindCallTrailer, 0, 3, trailed("", field(fieldTimeout, 0, 0, 16, 0, 0, 0, 0, 0))) // a millisecond
	m, err := c.Recv(h.ctx)
	ctx := good(t, m, err).Context()
	<-ctx.Done()
	if err := ctx.Err(); err != context.DeadlineExceeded || context.Cause(ctx) != errDeadline {
		t.Errorf("the context has ended: %v, %v", err, context.Cause(ctx))
	}
	m.Release()
}

// TestOldCallee calls a peer without trailers: a deadline is left out, and metadata is refused.
func TestOldCallee(t *testing.T) {
	hi := honestHello()
	hi.features &^= featureTrailers
	c, h := hostilePair(t, nil, hi)
	if _, err := c.Call(WithMetadata(h.ctx, "key", "value"), nil); !errors.Is(err, ErrNoMetadata) {
		t.Errorf("Call with metadata returns %v", err)
	}
	ctx, cancel := context.WithCancel(h.ctx) // which has a deadline
	called := make(chan error, 1)
	go func() { _, err := c.Call(ctx, []byte("call")); called <- err }()
	if k, number, body := h.recv(); k != kindCall || number != 0 || string(body) != "call" {
		t.Errorf("kind %d, number %d, %q", k, number, body)
	}
	cancel()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Errorf("Call returns %v", err)
	}
	if k, number, _ := h.recv(); k != kindCancel || number != 0 {
		t.Errorf("kind %d, number %d", k, number)
	}
}

// TestOldCaller replies with an error to a peer without trailers, which learns of it by the end of the connection.
func TestOldCaller(t *testing.T) {
	hi := honestHello()
	hi.features &^= featureTrailers
	c, h := hostilePair(t, nil, hi)
	if !h.post(uverbs.OpSendImm, packImm(kindCall, credits{replies: 2}, 0), nil) || !h.send(kindCall, 0, 1, nil) {
		t.Fatal("the calls are not sent")
	}
	good := false
	err := c.Handle(h.ctx, func(context.Context, *Request) ([]byte, error) {
		if good = !good; good {
			return []byte("yes"), nil
		}
		return nil, &CallError{Code: 105, Text: "no"}
	}, &HandleOptions{MaxHandlers: 1})
	var reason *CloseError
	if !errors.As(err, &reason) || reason.Code != 105 || reason.Text != "no" {
		t.Errorf("Handle returns %v", err)
	}
	if k, _, body := h.recv(); k != kindReply || string(body) != "yes" {
		t.Errorf("kind %d, %q", k, body)
	}
	k, _, body := h.recv()
	f, err := parseFarewell(body, defaultDepth)
	if k != kindEnd || err != nil || f.reason == nil || f.reason.Code != 105 || f.reason.Text != "no" {
		t.Errorf("kind %d, %x, %v", k, body, err)
	}
}

// TestHostileShutdown checks that a peer which accepts no replies does not make a server that shuts down refuse any
// number of calls at the same time.
func TestHostileShutdown(t *testing.T) {
	c, h := hostilePair(t, &Options{Depth: 4}, honestHello())
	began, release, handled := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		handled <- c.Handle(h.ctx, func(context.Context, *Request) ([]byte, error) {
			began <- struct{}{}
			<-release
			return nil, nil
		}, &HandleOptions{MaxHandlers: 1})
	}()
	h.send(kindCall, 0, 0, nil)
	<-began
	c.drain()
	wait := func(what string, ok func() bool) {
		t.Helper()
		for done := false; !done; <-time.After(time.Millisecond) {
			c.mu.Lock()
			handlers := c.handlers
			done = ok()
			c.unlock()
			if handlers > 5 || h.ctx.Err() != nil {
				t.Fatalf("in vain: %s; %d calls are handled or refused", what, handlers)
			}
		}
	}
	for i := range 6 {
		wait("a credit", func() bool { return c.messages.granted > 0 })
		h.send(kindCall, 0, 1+i, nil)
	}
	wait("four calls are refused", func() bool { return c.handlers == 5 && c.count == 2 })
	h.end(farewell{}) // which ends the calls that wait
	close(release)
	if err := <-handled; err != nil {
		t.Error(err)
	}
}
