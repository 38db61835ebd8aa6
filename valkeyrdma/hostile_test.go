package valkeyrdma_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/valkeyrdma"
)

// What a server may not send ends the connection, with an error that says so.
func TestHostileServer(t *testing.T) {
	for name, attack := range map[string]func(h *raw) bool{
		"more data than there is room for": func(h *raw) bool { return h.write(0, nil, h.length+1) },
		"the largest length":               func(h *raw) bool { return h.write(0, nil, math.MaxUint32) },
		"more data after the buffer is full": func(h *raw) bool {
			return h.write(0, nil, h.length) && h.write(0, nil, 1)
		},
		"an unknown command":         func(h *raw) bool { return h.send(h.command(4)) },
		"a short command":            func(h *raw) bool { return h.send(h.command(2)[:31]) },
		"an empty command":           func(h *raw) bool { return h.send(nil) },
		"a long command":             func(h *raw) bool { h.send(make([]byte, 33)); return true },
		"a client's command":         func(h *raw) bool { return h.send(h.command(1)) },
		"a reply without a question": func(h *raw) bool { return h.send(h.command(0)) },
		"a second buffer":            func(h *raw) bool { return h.send(h.register(h.mr.Addr(), rawBuffer, h.mr.RKey())) },
	} {
		t.Run(name, func(t *testing.T) {
			h, c := established(t, valkeyrdma.Config{RecvBuffer: 1 << 16})
			if !attack(h) {
				t.Fatal("the connection has ended before")
			}
			check(t, c.SetDeadline(time.Now().Add(time.Minute)))
			_, err := io.Copy(io.Discard, c)
			isError(t, err, valkeyrdma.ErrProtocol)
			isError(t, err, syscall.ECONNRESET)
			_, err = c.Write([]byte("x"))
			isError(t, err, valkeyrdma.ErrProtocol)
		})
	}
}

// A peer learns at once that it has ended the connection, not with Close.
func TestPeerIsTold(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{})
	h.send(h.command(4))
	_, err := c.Read(make([]byte, 1))
	isError(t, err, valkeyrdma.ErrProtocol)
	for err = nil; err == nil; {
		_, err = h.conn.RecvComp(h.ctx)
	}
	isError(t, err, cm.ErrDisconnected)
}

// A buffer that cannot be is refused in Dial.
func TestHostileBuffer(t *testing.T) {
	for name, register := range map[string]func(h *raw) []byte{
		"no length":       func(h *raw) []byte { return h.register(h.mr.Addr(), 0, h.mr.RKey()) },
		"beyond the end":  func(h *raw) []byte { return h.register(math.MaxUint64-10, rawBuffer, h.mr.RKey()) },
		"another command": func(h *raw) []byte { return h.command(77) },
	} {
		t.Run(name, func(t *testing.T) {
			_, result := rawServer(t, valkeyrdma.Config{}, func(h *raw) { h.send(register(h)) })
			isError(t, (<-result).err, valkeyrdma.ErrProtocol)
		})
	}
}

// A server that announces a key that is none, or more memory than it has, only ends its own connection.
func TestHostileKey(t *testing.T) {
	for name, register := range map[string]func(h *raw) []byte{
		"key":    func(h *raw) []byte { return h.register(h.mr.Addr(), rawBuffer, ^h.mr.RKey()) },
		"length": func(h *raw) []byte { return h.register(h.mr.Addr(), math.MaxUint32, h.mr.RKey()) },
	} {
		t.Run(name, func(t *testing.T) {
			_, result := rawServer(t, valkeyrdma.Config{}, func(h *raw) { h.send(register(h)) })
			d := <-result
			check(t, d.err)
			defer d.conn.Close()
			b, err := make([]byte, 1<<20), error(nil)
			for err == nil {
				_, err = d.conn.Write(b)
			}
			isError(t, err, syscall.ECONNRESET)
		})
	}
}

// What a server may send has no effect on the data.
func TestHarmless(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{RecvBuffer: 1 << 16})
	h.send(h.command(2))
	h.write(0, nil, 0)
	h.next++ // one part without immediate data
	if !h.completed(h.conn.PostWrite(h.next, 2, h.addr, h.key, h.scratch([]byte("hello, ")))) ||
		!h.write(7, []byte("world"), 12) {
		t.Fatal("the connection has ended")
	}
	got := make([]byte, 12)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello, world" {
		t.Errorf("%q, %v", got, err)
	}
}

// What a client may not send ends its connection.
func TestHostileClient(t *testing.T) {
	for name, attack := range map[string]func(h *raw){
		"features": func(h *raw) {
			b := h.command(1)
			binary.BigEndian.PutUint64(b[24:], 1)
			h.send(b)
		},
		"more data than there is room for": func(h *raw) { h.write(0, nil, h.length+1) },
		"two buffers": func(h *raw) {
			for range 2 {
				h.send(h.register(h.mr.Addr(), rawBuffer, h.mr.RKey()))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := machines(t)
			var l *valkeyrdma.Listener
			p.there.Run(func() { l = must(valkeyrdma.Listen(":6379"))(t) })
			h := &raw{t: t, ctx: limit(t)}
			o := h.options()
			p.here.Run(func() { must(cm.Dial(h.ctx, p.addr(), &o))(t) })
			defer h.conn.Close()
			c := must(l.Accept())(t)
			for h.length == 0 {
				h.receive()
			}
			attack(h)
			_, err := io.Copy(io.Discard, c)
			isError(t, err, valkeyrdma.ErrProtocol)
			check(t, errors.Join(c.Close(), l.Close()))
		})
	}
}

// FuzzServer plays what bytes say against a client: two of them are what to do, and how much. Whatever comes, calls
// return.
func FuzzServer(f *testing.F) {
	f.Add([]byte{0, 5, 1, 0, 2, 200, 0, 255, 3, 0, 4, 9})
	f.Add([]byte{2, 255, 2, 255, 3, 0, 5, 7, 0, 0, 6, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		h, c := established(t, valkeyrdma.Config{RecvBuffer: 1 << 16})
		read := background(func() error { _, err := io.Copy(io.Discard, c); return err })
		written := background(func() (err error) {
			for b := make([]byte, 100); err == nil; {
				_, err = c.Write(b)
			}
			return err
		})
		for ok := true; ok && len(script) >= 2; script = script[2:] {
			ok = h.play(script[0], script[1])
		}
		check(t, h.conn.Close())
		if err := <-read; err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		isError(t, <-written, syscall.ECONNRESET)
	})
}

// play does what two bytes of a script say. It returns false if the connection has ended.
func (h *raw) play(what, n byte) bool {
	switch what % 7 {
	case 0:
		h.at += uint64(n)
		return h.write(0, nil, uint32(n))
	case 1:
		return h.send(h.command(2))
	case 2: // behind what the client may read
		at := h.at
		if h.at += uint64(n) << 8; h.at > uint64(h.length) {
			return h.write(0, nil, uint32(n)<<8)
		}
		return h.write(at, make([]byte, n), uint32(n)<<8)
	case 3:
		return h.send(h.command(0))
	case 4:
		return h.send(h.register(h.mr.Addr()+uint64(n), uint32(n), h.mr.RKey()))
	case 5:
		return h.send(make([]byte, n))
	}
	return h.send(h.command(uint16(n)))
}
