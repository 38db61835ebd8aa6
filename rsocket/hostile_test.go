package rsocket_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
)

// badHellos are private data that no rsocket sends.
func badHellos() map[string]func(b []byte) []byte {
	change := func(f func(b []byte)) func([]byte) []byte {
		return func(b []byte) []byte { f(b); return b }
	}
	return map[string]func([]byte) []byte{
		"none":       func([]byte) []byte { return nil },
		"zeros":      func(b []byte) []byte { return make([]byte, len(b)) },
		"text":       func([]byte) []byte { return []byte("another program, whose private data are text") },
		"version 0":  change(func(b []byte) { b[0] = 0 }),
		"version 2":  change(func(b []byte) { b[0] = 2 }),
		"no entries": change(func(b []byte) { binary.BigEndian.PutUint32(b[20:], 0) }),
	}
}

// TestHostileHello checks that a listener rejects peers with other private data, and goes on.
func TestHostileHello(t *testing.T) {
	p := machines(t)
	l := p.listen(t, rsocket.Config{})
	var served <-chan error
	p.onServer(func() {
		served = background(func() error {
			c, err := l.AcceptConn()
			if err != nil {
				return err
			}
			_, err = io.Copy(c, c)
			return errors.Join(err, c.Close())
		})
	})
	for name, change := range badHellos() {
		h := &raw{t: t, ctx: limit(t), rawConfig: rawConfig{change: change}.defaults()}
		p.onClient(func() {
			_, err := cm.Dial(h.ctx, p.addr(l), h.options())
			if !errors.Is(err, cm.ErrRejected) {
				t.Errorf("%s: the peer's error is %v", name, err)
			}
		})
	}
	p.onClient(func() {
		c := must(rsocket.Dial("tcp", p.addr(l)))(t)
		write(t, c, []byte("hello"))
		read(t, c, []byte("hello"))
		check(t, c.Close())
	})
	check(t, within(t, served, "the server"))
	check(t, l.Close())
}

// TestHostileListener checks that Dial refuses a listener with other private data.
func TestHostileListener(t *testing.T) {
	p := machines(t)
	for name, change := range badHellos() {
		h := &raw{t: t, ctx: limit(t), rawConfig: rawConfig{change: change}.defaults()}
		var l *cm.Listener
		var accepted <-chan error
		p.onServer(func() {
			l = must(cm.Listen(":0", &cm.ListenOptions{Options: *h.options()}))(t)
			accepted = background(func() error {
				c, err := l.Accept(h.ctx)
				if err == nil {
					err = c.Close()
				}
				return err
			})
		})
		p.onClient(func() {
			_, err := rsocket.Dial("tcp", p.there.AddrPort(l.Addr().Port()).String())
			var op *net.OpError
			if !errors.Is(err, rsocket.ErrProtocol) || !errors.As(err, &op) || op.Op != "dial" {
				t.Errorf("%s: %v", name, err)
			}
		})
		check(t, l.Close())
		_ = within(t, accepted, "Accept") // a connection that has ended, or the end of the listener
		if h.mr != nil {
			check(t, h.mr.Close())
		}
	}
}

// violations are what a peer must not send.
var violations = map[string]func(h *raw){
	"more data than granted":   func(h *raw) { h.message(0, 8193, h.target, nil) },
	"most data":                func(h *raw) { h.message(0, 1<<29-1, h.target, nil) },
	"op 1":                     func(h *raw) { h.message(1, 1, h.target, nil) },
	"op 2":                     func(h *raw) { h.message(2, 1, h.target, nil) },
	"op 3":                     func(h *raw) { h.message(3, 0, h.target, nil) },
	"op 5":                     func(h *raw) { h.message(5, 1, h.target, nil) },
	"short entry":              func(h *raw) { h.announceBytes(64, make([]byte, 15)) },
	"long entry":               func(h *raw) { h.announceBytes(64, make([]byte, 17)) },
	"entry of one byte":        func(h *raw) { h.announceBytes(64, make([]byte, 1)) },
	"entry of the whole list":  func(h *raw) { h.entry = 0; h.announceBytes(64, make([]byte, 32)) },
	"empty entry":              func(h *raw) { h.announce(64, rawSGE{h.mr.Addr(), h.mr.RKey(), 0}) },
	"three buffers":            func(h *raw) { _ = h.announce(64, h.half(1)) && h.announce(64, h.half(0)) },
	"mapping out of range":     func(h *raw) { h.message(6, 2, h.theirs().list, make([]byte, 24)) },
	"mapping far out of range": func(h *raw) { h.message(6, 1<<29-1, h.theirs().list, nil) },
	"mapping without entry":    func(h *raw) { h.message(6, 0, rawSGE{}, nil) },
	"short mapping":            func(h *raw) { h.message(6, 1, h.theirs().list, make([]byte, 23)) },
	"long mapping":             func(h *raw) { h.message(6, 1, h.theirs().list, make([]byte, 25)) },
	"control 3":                func(h *raw) { h.control(3) },
	"last control":             func(h *raw) { h.control(1<<29 - 1) },
	"SEND":                     func(h *raw) { h.post(uverbs.SendWR{Opcode: uverbs.OpSend}, nil) },
	"SEND with immediate data": func(h *raw) { h.post(uverbs.SendWR{Opcode: uverbs.OpSendImm}, nil) },
	"SEND with data":           func(h *raw) { h.post(uverbs.SendWR{Opcode: uverbs.OpSendImm}, make([]byte, 4)) },
}

// lateMessages follow the end of what the peer sends.
var lateMessages = map[string]func(h *raw){
	"data after the end":    func(h *raw) { _ = h.control(2) && h.data([]byte("late")) },
	"no data after the end": func(h *raw) { _ = h.control(2) && h.message(0, 0, rawSGE{}, nil) },
	"mapping after the end": func(h *raw) { _ = h.control(2) && h.mapping(0, 0, h.half(0)) },
}

// TestHostileMessages checks that the connection ends if the peer breaks the protocol, and that nothing that it sends
// afterwards is read. Another connection of the machine goes on.
func TestHostileMessages(t *testing.T) {
	eachRole(t, func(t *testing.T, role string) {
		p := machines(t)
		p.net.Allow(rawRules...)
		p.dial(t, rsocket.Config{}, rsocket.Config{})
		for name, attack := range violations {
			t.Run(name, func(t *testing.T) {
				p.attack(t, role, attack, rsocket.ErrProtocol, rsocket.ErrProtocol)
			})
		}
		for name, attack := range lateMessages {
			t.Run(name, func(t *testing.T) { p.attack(t, role, attack, nil, rsocket.ErrProtocol) })
		}
		t.Run("data after the connection", func(t *testing.T) {
			p.attack(t, role, func(h *raw) { _ = h.control(0) && h.data([]byte("late")) }, nil, syscall.ECONNRESET)
		})
	})
}

// attack checks how an attack ends: the errors of io.Copy and of Write.
func (p *pair) attack(t *testing.T, role string, attack func(h *raw), ofCopy, ofWrite error) {
	c, h := p.rawPair(t, role, rsocket.Config{RecvBuffer: 8192, Mappings: 2}, rawConfig{posted: 100})
	h.expect(4, 384, 16)
	copied := make(chan int64, 1)
	ended := background(func() error {
		n, err := io.Copy(io.Discard, c)
		copied <- n
		return err
	})
	attack(h)
	h.message(0, 5, h.target, nil)
	h.message(0, 5, h.target, nil)
	err := within(t, ended, "Read")
	if n := <-copied; n != 0 {
		t.Errorf("%d bytes are read", n)
	}
	if !errors.Is(err, ofCopy) || ofCopy != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("io.Copy returns %v", err)
	}
	for err = nil; err == nil; { // Write looks at what arrives when it has used up its credits
		_, err = c.Write([]byte("x"))
	}
	isError(t, err, ofWrite)
	check(t, within(t, background(c.Close), "Close"))
	p.exchange(t, []byte("another connection"))
}

// TestHarmless sends what is unusual but permitted.
func TestHarmless(t *testing.T) {
	repeat := func(n int, f func() bool) {
		for range n {
			_ = f()
		}
	}
	eachRole(t, func(t *testing.T, role string) {
		for name, act := range map[string]func(h *raw){
			"keepalive message":   func(h *raw) { h.control(1) },
			"empty data":          func(h *raw) { repeat(300, func() bool { return h.message(0, 0, rawSGE{}, nil) }) },
			"keepalive messages":  func(h *raw) { repeat(300, func() bool { return h.control(1) }) },
			"limits":              func(h *raw) { repeat(300, func() bool { return h.limit(64) }) },
			"limits that go back": func(h *raw) { h.limit(70); h.limit(65) },
			"limit of 29 bits":    func(h *raw) { h.limit(1<<29 - 65536 + 64) },
			"buffer of 4 GiB":     func(h *raw) { h.announce(64, rawSGE{h.mr.Addr() + 1<<15, h.mr.RKey(), 1<<32 - 1}) },
			"mapping of 4 GiB":    func(h *raw) { h.mapping(0, 1<<63, rawSGE{1 << 63, 1, 1<<32 - 1}) },
			"mapping of nothing":  func(h *raw) { h.mapping(1, 0, rawSGE{}) },
			"data in other memory": func(h *raw) {
				h.message(0, 0, rawSGE{h.theirs().data.addr + 100, h.theirs().data.key, 0}, make([]byte, 50))
			},
			"plain WRITEs": func(h *raw) { h.write(h.theirs().list, make([]byte, 80)); h.write(rawSGE{}, nil) },
		} {
			t.Run(name, func(t *testing.T) {
				c, h := rawPair(t, role, rsocket.Config{RecvBuffer: 8192, Mappings: 2}, rawConfig{posted: 100})
				h.expect(4, 384, 16)
				heard := make([]byte, 5)
				got := background(func() error { _, err := io.ReadFull(c, heard); return err })
				act(h)
				if !h.data([]byte("hello")) {
					t.Fatal("the connection has ended")
				}
				check(t, within(t, got, "Read"))
				if string(heard) != "hello" {
					t.Errorf("%q", heard)
				}
				write(t, c, []byte("reply"))
				for op := uint32(4); op != 0; {
					op, _, _ = h.next()
				}
				if got := string(h.mr.Bytes()[:5]); got != "reply" {
					t.Errorf("%q", got)
				}
				if !h.control(0) || !h.control(0) || !h.control(2) {
					t.Fatal("the connection has ended")
				}
				isEOF(t, c)
				_, err := c.Write([]byte("x"))
				isError(t, err, syscall.ECONNRESET)
				check(t, c.Close())
			})
		}
	})
}

// TestHostileMemory checks that a write to memory that a peer has announced, but not registered, ends the connection.
func TestHostileMemory(t *testing.T) {
	for name, change := range map[string]func(s *rawSGE){
		"key":     func(s *rawSGE) { s.key ^= 0x100 },
		"address": func(s *rawSGE) { s.addr += 1 << 40 },
		"wraps":   func(s *rawSGE) { s.addr, s.length = 1<<64-2, 1<<32-1 },
	} {
		t.Run(name, func(t *testing.T) {
			c, h := rawPair(t, "server", rsocket.Config{}, rawConfig{ring: 8192})
			h.expect(4, 384, 16)
			write(t, c, make([]byte, 4096))
			s := h.half(1)
			change(&s)
			h.announce(64, s)
			wrote := background(func() error {
				for {
					if _, err := c.Write(make([]byte, 10)); err != nil {
						return err
					}
				}
			})
			err := within(t, wrote, "Write")
			isError(t, err, uverbs.WCRemAccessErr)
			isError(t, err, syscall.ECONNRESET)
			isError(t, readEnd(t, c), uverbs.WCRemAccessErr)
		})
	}
}

// TestSilence checks that every call ends by its deadline, and Close within its time, if the peer does nothing.
func TestSilence(t *testing.T) {
	eachRole(t, func(t *testing.T, role string) {
		for name, config := range map[string]rawConfig{"few receives": {receives: 4}, "no receives": {posted: -1}} {
			t.Run(name, func(t *testing.T) {
				c, _ := rawPair(t, role, rsocket.Config{Linger: 20 * time.Millisecond}, config)
				for name, f := range map[string]func() error{
					"Read":     func() error { _, err := c.Read(make([]byte, 1)); return err },
					"Write":    func() error { _, err := c.Write(make([]byte, 1<<20)); return err },
					"ReadFrom": func() error { _, err := c.ReadFrom(zeros{}); return err },
				} {
					check(t, c.SetDeadline(time.Now().Add(5*time.Millisecond)))
					isError(t, within(t, background(f), name), os.ErrDeadlineExceeded)
				}
				closed := within(t, background(c.Close), "Close")
				if closed == nil && config.posted < 0 {
					t.Error("Close returns nil although data is lost")
				}
			})
		}
	})
}

// TestCloseWriteWaits checks that CloseWrite ends by the deadline of writes, or by Close, if too many control messages
// are outstanding, and that it can be called again.
func TestCloseWriteWaits(t *testing.T) {
	c, h := rawPair(t, "server", rsocket.Config{RecvBuffer: 8192, Linger: 20 * time.Millisecond}, rawConfig{posted: -1})
	half := h.target
	for i := range 4 { // each is replied with a buffer, for which there is no receive
		h.target = half
		h.target.addr += uint64(i % 2 * 4096)
		if !h.data(make([]byte, 4096)) {
			t.Fatal("the connection has ended")
		}
		read(t, c, make([]byte, 4096))
	}
	check(t, c.SetWriteDeadline(time.Now().Add(5*time.Millisecond)))
	isError(t, within(t, background(c.CloseWrite), "CloseWrite"), os.ErrDeadlineExceeded)
	check(t, c.SetWriteDeadline(time.Time{}))
	waits := background(c.CloseWrite)
	<-time.After(5 * time.Millisecond)
	check(t, within(t, background(c.Close), "Close"))
	if err := within(t, waits, "CloseWrite"); err == nil {
		t.Error("CloseWrite returns nil")
	}
}

// TestHostileFlood checks that deadlines and other connections work, and memory does not grow, while a peer sends
// control messages and empty data without end.
func TestHostileFlood(t *testing.T) {
	p := machines(t)
	p.net.Allow(rawRules...)
	p.dial(t, rsocket.Config{}, rsocket.Config{})
	c, h := p.rawPair(t, "server", rsocket.Config{}, rawConfig{posted: 100})
	flooded := background(func() error {
		for i := uint32(0); h.message(7*(i%2), i%2, rawSGE{}, nil); i++ {
			for h.conn.QP().RecvsOutstanding() < 50 {
				h.next()
			}
		}
		return nil
	})
	var before, after runtime.MemStats
	for i := range 60 {
		if i == 10 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		check(t, c.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		isError(t, readEnd(t, c), os.ErrDeadlineExceeded)
		p.exchange(t, []byte("another connection"))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+4<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", before.HeapAlloc, after.HeapAlloc)
	}
	check(t, c.SetReadDeadline(time.Time{}))
	waits := background(func() error { _, err := c.Read(make([]byte, 1)); return err })
	check(t, within(t, background(c.Close), "Close"))
	isError(t, within(t, waits, "Read"), net.ErrClosed)
	check(t, within(t, flooded, "the flood"))
}

// TestKeysOfOthers checks that a peer cannot reach the memory of another connection with its keys.
func TestKeysOfOthers(t *testing.T) {
	p := machines(t)
	p.net.Allow(rawRules...)
	c, friend := p.rawPair(t, "server", rsocket.Config{}, rawConfig{})
	_, other := p.rawPair(t, "server", rsocket.Config{}, rawConfig{})
	if other.write(friend.theirs().data, []byte("forged")) {
		t.Error("the memory of another connection is written")
	}
	if !friend.data([]byte("honest")) {
		t.Fatal("the connection has ended")
	}
	read(t, c, []byte("honest"))
}
