package rdma

import (
	"context"
	"errors"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// FuzzHello checks that what parseHello accepts is within the limits, and that bytes returns it.
func FuzzHello(f *testing.F) {
	for _, b := range badHellos() {
		f.Add(b)
	}
	honest := honestHello()
	f.Add(honest.bytes())
	later := laterHello()
	f.Add(later.bytes())
	honest.depth, honest.fields = 2, windowField(defaultDepth)
	f.Add(honest.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b, client)
		if err != nil {
			if !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrVersion) {
				t.Error(err)
			}
			return
		}
		if h.depth < 1 || h.depth > maxDepth || h.eager < minEager || h.eager > maxEager || h.offers > maxOffers ||
			h.maxMessage < h.eager || h.maxMessage > maxMessage {
			t.Errorf("%+v", h)
		}
		if again, err := parseHello(h.bytes(), client); err != nil || !reflect.DeepEqual(again, h) {
			t.Errorf("%+v and %+v, %v", h, again, err)
		}
	})
}

// FuzzOffer checks that what parseOffer accepts is within the limits.
func FuzzOffer(f *testing.F) {
	var b [offerLen]byte
	(&offer{kind: kindCall, number: 3, key: 4, addr: 5, length: 6000}).put(&b)
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOffer(b, 1<<20)
		switch {
		case err != nil && !errors.Is(err, ErrProtocol):
			t.Error(err)
		case err == nil && (o.length == 0 || o.length > 1<<20 || o.kind > kindReply && o.kind != kindCallTrailer):
			t.Errorf("%+v", o)
		}
	})
}

// FuzzToken checks that an operation that check permits is within the token.
func FuzzToken(f *testing.F) {
	b, _ := Token{Addr: 1 << 40, Len: 4096, Key: 7, Rights: CanRead}.MarshalBinary()
	f.Add(b, 100, 10)
	f.Fuzz(func(t *testing.T, b []byte, off, n int) {
		var token Token
		if token.UnmarshalBinary(b) != nil || token.check(off, n, CanRead) != nil {
			return
		}
		if off < 0 || n < 0 || uint64(off)+uint64(n) > token.Len || token.Addr+uint64(off)+uint64(n) < token.Addr {
			t.Errorf("%d bytes at %d of %+v", n, off, token)
		}
	})
}

// FuzzPeer plays what bytes say against a connection: three of them are the immediate data of a SEND, the length of its
// body and its first byte. Whatever comes, calls return within their context, and an error says what is wrong. The
// listener shares receives if there is a byte more.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0x10, 0, 2, 0x30, 1, 24})
	f.Add([]byte{0x60, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 1, 0x10, 0, 2, 0x30, 1, 24, 1})
	f.Add([]byte{0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0x50, 0, 0, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		n := verbstest.NewNetwork(t)
		n.Allow(verbstest.RemoteAccess, verbstest.ReceiveLate, verbstest.ReceiveLength, verbstest.BadRequest,
			verbstest.CQCapacity, verbstest.CQOverrun, verbstest.Unsignaled)
		o := &ListenOptions{Options: Options{Linger: -1, Depth: 4}}
		if len(script)%3 == 1 {
			o.SharedReceives = minShared
		}
		c, h := hostileTo(t, n.Machine(), n.Machine(), o, honestHello())
		ended := make(chan error, 1)
		go func() { ended <- honestProgram(h.ctx, c) }()
		for ; len(script) >= 3; script = script[3:] {
			body := make([]byte, script[2])
			for i := range body {
				body[i] = script[0]
			}
			op := uverbs.OpSendImm
			if script[1]&0x80 != 0 {
				op = uverbs.OpWriteImm
				body = nil
			}
			if !h.post(op, uint32(script[0])<<24|uint32(script[1]&0x7f), body) {
				break
			}
		}
		h.end(farewell{})
		if err := h.conn.ID().ID.Disconnect(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != io.EOF && !errors.Is(err, ErrDisconnected) {
			t.Error(err)
		}
	})
}

// honestProgram receives, replies and sends until the connection ends.
func honestProgram(ctx context.Context, c *Conn) error {
	for {
		m, err := c.Recv(ctx)
		if err != nil {
			return err
		}
		if m.IsCall() {
			err = m.Reply(ctx, m.Bytes())
		}
		m.Release()
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		if sendErr := c.Send(short, make([]byte, 5000)); !errors.Is(sendErr, context.DeadlineExceeded) {
			err = errors.Join(err, sendErr)
		}
		cancel()
		if err != nil {
			return err
		}
	}
}
