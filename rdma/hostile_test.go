package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// badHellos are private data that no peer with this package sends.
func badHellos() map[string][]byte {
	change := func(f func(b []byte)) []byte {
		h := honestHello()
		b := h.bytes()
		f(b)
		return b
	}
	fields := func(b ...byte) []byte {
		h := honestHello()
		h.fields = b
		return h.bytes()
	}
	le := binary.LittleEndian
	return map[string][]byte{
		"none":            nil,
		"short":           []byte("gRDM"),
		"another program": []byte("another program, with a long hello"),
		"no version":      change(func(b []byte) { b[4], b[5] = 0, 0 }),
		"versions":        change(func(b []byte) { b[4], b[5] = 2, 1 }),
		"short hello":     change(func(b []byte) { b[6]-- }),
		"long hello":      change(func(b []byte) { b[6] = 255 }),
		"half a field":    fields(1),
		"long field":      fields(1, 1, 0, 2, 1),
		"private data":    change(func(b []byte) { b[7] = 255 }),
		"no depth":        change(func(b []byte) { le.PutUint16(b[12:], 0) }),
		"depth":           change(func(b []byte) { le.PutUint16(b[12:], maxDepth+1) }),
		"offers":          change(func(b []byte) { b[14] = maxOffers + 1 }),
		"window":          fields(fieldWindow, 2, 1, 0),
		"long window":     fields(fieldWindow, 2, 1, 8),
		"no receives":     change(func(b []byte) { le.PutUint32(b[16:], 0) }),
		"long receives":   change(func(b []byte) { le.PutUint32(b[16:], 1<<31) }),
		"short messages":  change(func(b []byte) { le.PutUint32(b[20:], 1) }),
		"long messages":   change(func(b []byte) { le.PutUint32(b[20:], 1<<31) }),
	}
}

// TestHostileHello checks that a listener refuses peers with another hello, goes on, and says whom it has refused.
func TestHostileHello(t *testing.T) {
	n := verbstest.NewNetwork(t)
	honest, other := n.Machine(), n.Machine()
	ctx := bounded(t)
	refused := make(chan error, 1)
	var l *Listener
	honest.Run(func() {
		var err error
		l, err = Listen(":0", &ListenOptions{Refused: func(_ netip.AddrPort, err error) { refused <- err }})
		good(t, l, err)
	})
	accepted := make(chan *Conn, 1)
	honest.Run(func() {
		go func() {
			c, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
	})
	addr := honest.AddrPort(l.Addr().Port()).String()
	other.Run(func() {
		for name, b := range badHellos() {
			_, err := cm.Dial(ctx, addr, &cm.Options{PrivateData: b})
			if !errors.Is(err, cm.ErrRejected) || !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: the peer's error is %v", name, err)
			}
			if err := <-refused; !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: refused because of %v", name, err)
			}
		}
		c, err := Dial(ctx, addr, &Options{PrivateData: []byte("hello")})
		good(t, c, err)
		s := <-accepted
		if string(s.PrivateData()) != "hello" {
			t.Errorf("private data %q", s.PrivateData())
		}
		if err := errors.Join(c.Close(), s.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestHostileListener checks that Dial refuses a listener with another hello.
func TestHostileListener(t *testing.T) {
	n := verbstest.NewNetwork(t)
	honest, other := n.Machine(), n.Machine()
	ctx := bounded(t)
	for name, b := range badHellos() {
		var l *cm.Listener
		ended := make(chan error, 1)
		other.Run(func() {
			var err error
			l, err = cm.Listen(":0", &cm.ListenOptions{Options: cm.Options{PrivateData: b}})
			good(t, l, err)
			go func() {
				c, err := l.Accept(ctx)
				if err == nil {
					err = c.Close()
				}
				ended <- err
			}()
		})
		honest.Run(func() {
			if _, err := Dial(ctx, other.AddrPort(l.Addr().Port()).String(), nil); !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: %v", name, err)
			}
		})
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-ended // a connection that has ended, or the end of the listener
	}
}

// TestHostileMessages checks that the connection ends if the peer breaks the protocol.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	repeat := func(n int, f func() bool) {
		for range n {
			if !f() {
				return
			}
		}
	}
	for name, attack := range map[string]func(h *hostile){
		"no immediate data": func(h *hostile) { h.post(uverbs.OpSend, 0, nil) },
		"kind":              func(h *hostile) { h.send(kinds, 0, 0, nil) },
		"last kind":         func(h *hostile) { h.send(15, 0, 0, nil) },
		"credits":           func(h *hostile) { h.send(kindCredits, 1, 0, nil) },
		"many credits":      func(h *hostile) { h.send(kindMessage, maxCredits, 0, nil) },
		"body of credits":   func(h *hostile) { h.send(kindCredits, 0, 0, []byte("x")) },
		"short end":         func(h *hostile) { h.send(kindEnd, 0, 0, []byte("x")) },
		"long end":          func(h *hostile) { h.send(kindEnd, 0, 0, make([]byte, farewellLen+1)) },
		"end with a code": func(h *hostile) {
			b := (&farewell{reason: &CloseError{Code: 1}}).appendTo(nil)
			b[4] = 0
			h.send(kindEnd, 0, 0, b)
		},
		"kind of the end": func(h *hostile) {
			b := (&farewell{}).appendTo(nil)
			b[4] = 2
			h.send(kindEnd, 0, 0, b)
		},
		"reason that is not UTF-8": func(h *hostile) { h.end(farewell{reason: &CloseError{Text: "\xff"}}) },
		"long reason": func(h *hostile) {
			h.end(farewell{reason: &CloseError{Text: strings.Repeat("x", maxCloseText+1)}})
		},
		"end that holds":    func(h *hostile) { h.end(farewell{held: 1}) },
		"end without reply": func(h *hostile) { h.end(farewell{calls: maxCalls + 1}) },
		"taken":             func(h *hostile) { h.send(kindTaken, 0, 0, nil) },
		"taken 65535":       func(h *hostile) { h.send(kindTaken, 0, 65535, nil) },
		"taken by message":  func(h *hostile) { h.send(kindMessage, 0, 1, nil) },
		"reply":             func(h *hostile) { h.send(kindReply, 0, 0, nil) },
		"reply 65535":       func(h *hostile) { h.send(kindReply, 0, 65535, nil) },
		"offered reply":     func(h *hostile) { h.offer(offer{kind: kindReply, length: 5000}, 0) },
		"call 1024":         func(h *hostile) { h.offer(offer{kind: kindCall, number: maxCalls, length: 5000}, 0) },
		"same call":         func(h *hostile) { repeat(2, func() bool { return h.send(kindCall, 0, 7, nil) }) },
		"short offer":       func(h *hostile) { h.send(kindOffer, 0, 0, []byte("short")) },
		"long offer":        func(h *hostile) { h.send(kindOffer, 0, 0, make([]byte, offerLen+1)) },
		"offer of nothing":  func(h *hostile) { h.offer(offer{}, 0) },
		"offer of offer":    func(h *hostile) { h.offer(offer{kind: kindOffer, length: 5000}, 0) },
		"offer too long":    func(h *hostile) { h.offer(offer{length: defaultMaxMessage + 1}, 0) },
		"offer of 2^64-1":   func(h *hostile) { h.offer(offer{length: 1<<64 - 1}, 0) },
		"offers": func(h *hostile) {
			o := offer{kind: kindCall, key: h.mr.RKey(), addr: h.mr.Addr(), length: 5000}
			repeat(defaultOffers+1, func() bool { o.number++; return h.offer(o, 0) })
		},
		"messages": func(h *hostile) {
			repeat(defaultDepth+1, func() bool { return h.send(kindMessage, 0, 0, nil) })
		},
		"WRITEs": func(h *hostile) {
			repeat(defaultDepth+1, func() bool { return h.post(uverbs.OpWriteImm, 1, nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, h := hostilePair(t, nil, honestHello())
			attack(h)
			var err error
			for err == nil { // what is received is not released
				_, err = c.Recv(h.ctx)
			}
			if !errors.Is(err, ErrProtocol) || !errors.Is(err, ErrDisconnected) {
				t.Errorf("Recv returns %v", err)
			}
			if err := c.Send(h.ctx, []byte("x")); !errors.Is(err, ErrProtocol) {
				t.Errorf("Send returns %v", err)
			}
		})
	}
}

// TestHostileReplies checks that the connection ends if the peer replies to what was not asked, or without a credit.
func TestHostileReplies(t *testing.T) {
	reply := func(h *hostile, number int) bool { return h.send(kindReply, 0, number, []byte("reply")) }
	for name, attack := range map[string]func(h *hostile){
		"another number": func(h *hostile) { reply(h, 1) },
		"two replies":    func(h *hostile) { _ = reply(h, 0) && reply(h, 0) },
		"two offers": func(h *hostile) {
			o := offer{kind: kindReply, key: h.mr.RKey(), addr: h.mr.Addr(), length: 5000}
			_ = h.offer(o, 0) && h.offer(o, 1)
		},
		"offer of a reply to another": func(h *hostile) { h.offer(offer{kind: kindReply, number: 1, length: 5000}, 0) },
		"credits for replies": func(h *hostile) {
			h.post(uverbs.OpSendImm, packImm(kindCredits, credits{replies: defaultDepth + 1}, 0), nil)
		},
		"more credits for replies": func(h *hostile) {
			imm := packImm(kindCredits, credits{replies: defaultDepth}, 0)
			_ = h.post(uverbs.OpSendImm, imm, nil) && h.post(uverbs.OpSendImm, imm, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, h := hostilePair(t, nil, honestHello())
			called := make(chan error, 1)
			go func() {
				_, err := c.Call(h.ctx, []byte("call"))
				called <- err
			}()
			if k, number, _ := h.recv(); k.base() != kindCall || number != 0 {
				t.Fatalf("kind %d, number %d", k, number)
			}
			attack(h)
			if _, err := c.Recv(h.ctx); !errors.Is(err, ErrProtocol) {
				t.Errorf("Recv returns %v", err)
			}
			if err := <-called; err != nil && !errors.Is(err, ErrProtocol) {
				t.Errorf("Call returns %v", err)
			}
		})
	}
}

// TestHostileCalls checks that a reply waits for its context if the peer gives no credits for replies.
func TestHostileCalls(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	if !h.post(uverbs.OpSendImm, packImm(kindCall, credits{replies: 1}, 5), nil) || !h.send(kindCall, 0, 6, nil) {
		t.Fatal("the calls were not sent")
	}
	for i := range 2 {
		m, err := c.Recv(h.ctx)
		good(t, m, err)
		m.Release()
		short, cancel := context.WithTimeout(h.ctx, 10*time.Millisecond)
		err = m.Reply(short, nil)
		if i == 0 && err != nil || i == 1 && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reply %d returns %v", i, err)
		}
		cancel()
	}
	if err := c.Send(h.ctx, nil); err != nil { // messages have their own credits
		t.Error(err)
	}
}

// TestHostileOffer checks that an offer of memory that cannot be read ends the connection, and nothing else.
func TestHostileOffer(t *testing.T) {
	for name, change := range map[string]func(o *offer){
		"key":     func(o *offer) { o.key ^= 0x100 },
		"address": func(o *offer) { o.addr += 1 << 40 },
		"length":  func(o *offer) { o.length = hostileSize + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			c, h := hostilePair(t, nil, honestHello())
			o := offer{key: h.mr.RKey(), addr: h.mr.Addr(), length: 5000}
			change(&o)
			h.offer(o, 0)
			_, err := c.Recv(h.ctx)
			const text = "the peer has ended, or its offer is wrong"
			if !errors.Is(err, uverbs.WCRemAccessErr) || !strings.Contains(err.Error(), text) {
				t.Errorf("Recv returns %v", err)
			}
		})
	}
}

// TestHostileEnd checks messages and another end after the end.
func TestHostileEnd(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	h.end(farewell{})
	h.send(kindMessage, 0, 0, []byte("late"))
	h.end(farewell{reason: &CloseError{Code: 1}})
	for {
		m, err := c.Recv(h.ctx)
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		m.Release()
	}
}

// TestSilence checks that every call returns within its context, and Close within its time, if the peer does nothing.
func TestSilence(t *testing.T) {
	c, h := hostilePair(t, &Options{Linger: 10 * time.Millisecond}, honestHello())
	region := NewRegion(100)
	for name, f := range map[string]func(ctx context.Context) error{
		"Send": func(ctx context.Context) error {
			for {
				if err := c.Send(ctx, make([]byte, 1000)); err != nil {
					return err
				}
			}
		},
		"long Send": func(ctx context.Context) error {
			for {
				if err := c.Send(ctx, make([]byte, 100000)); err != nil {
					return err
				}
			}
		},
		"Recv": func(ctx context.Context) error { _, err := c.Recv(ctx); return err },
		"Call": func(ctx context.Context) error { _, err := c.Call(ctx, nil); return err },
		"WriteImm": func(ctx context.Context) error {
			for { // until there are no credits
				token := Token{Addr: h.mr.Addr(), Key: h.mr.RKey(), Rights: CanWrite}
				if err := c.WriteImm(ctx, nil, token, 0, 1); err != nil {
					return err
				}
			}
		},
	} {
		ctx, cancel := context.WithTimeout(h.ctx, 10*time.Millisecond)
		if err := f(ctx); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s returns %v", name, err)
		}
		cancel()
	}
	s, err := c.Share(h.ctx, region, CanRead) // it does not need the peer
	good(t, s, err)
	if err := s.Revoke(); err != nil {
		t.Error(err)
	}
	mayLose(t, c.Close()) // it returns nil if WriteImm has used all credits
}

// TestHostileTokens checks that a peer cannot read what was shared with another one by guessing keys.
func TestHostileTokens(t *testing.T) {
	t.Parallel()
	n := verbstest.NewNetwork(t)
	n.Allow(verbstest.RemoteAccess, verbstest.ReceiveLate)
	honest, other := n.Machine(), n.Machine()
	friend, f := hostileOn(t, honest, other, nil, honestHello())
	region := NewRegion(64)
	copy(region.Bytes(), "secret")
	s, err := friend.Share(f.ctx, region, CanRead|CanWrite)
	good(t, s, err)
	token := s.Token()
	read := func(h *hostile, key uint32) error {
		clear(h.mr.Bytes()[:64])
		if err := h.conn.PostRead(0, uverbs.Signaled, token.Addr, key, h.mr.SGE(0, 64)); err != nil {
			return err
		}
		_, err := h.conn.SendComp(h.ctx)
		if string(h.mr.Bytes()[:6]) == "secret" {
			return nil
		}
		return errors.Join(err, errors.New("other bytes"))
	}
	if err := read(f, token.Key); err != nil {
		t.Errorf("the friend cannot read: %v", err)
	}
	for key := token.Key&^0xff - 0x300; key < token.Key&^0xff+0x300; key += 0x100 {
		for _, variant := range []uint32{0, token.Key & 0xff} {
			_, h := hostileOn(t, honest, other, &Options{Linger: -1}, honestHello())
			if err := read(h, key|variant); err == nil {
				t.Errorf("key %#x of %#x reads the secret", key|variant, token.Key)
			}
		}
	}
}

// TestHostileFlood checks that memory does not grow with the messages of a peer.
func TestHostileFlood(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	done := make(chan error, 1)
	go func() {
		for {
			m, err := c.Recv(h.ctx)
			if err != nil {
				done <- err
				return
			}
			m.Release()
		}
	}()
	var before, after runtime.MemStats
	for i := range 6000 {
		if i == 1000 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		o := offer{kind: kindMessage, key: h.mr.RKey(), addr: h.mr.Addr(), length: 5000}
		if i%8 == 0 {
			h.offer(o, i/8%defaultOffers)
			for k := kind(0); k != kindTaken; {
				k, _, _ = h.next()
			}
		} else if !h.send(kindMessage, 0, 0, nil) {
			t.Fatal(<-done)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+8<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", before.HeapAlloc, after.HeapAlloc)
	}
	h.end(farewell{})
	if err := <-done; err != io.EOF {
		t.Error(err)
	}
}

// next is recv, and posts the receive again.
func (h *hostile) next() (k kind, number int, body []byte) {
	h.t.Helper()
	wc, err := h.conn.RecvComp(h.ctx)
	good(h.t, wc, err)
	if err := h.conn.PostRecv(wc.WRID, h.mr.SGE(int(wc.WRID)*4096, 4096)); err != nil {
		h.t.Fatal(err)
	}
	k, _, number = unpackImm(wc.Imm)
	return k, number, nil
}
