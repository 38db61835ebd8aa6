package rsocket_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// eachRole runs a test with the honest side in either role.
func eachRole(t *testing.T, f func(t *testing.T, role string)) {
	for _, role := range roles {
		t.Run(role, func(t *testing.T) { f(t, role) })
	}
}

// TestHello checks the private data of both sides byte by byte.
func TestHello(t *testing.T) {
	for _, mappings := range []struct {
		config int
		wire   byte
		table  int
	}{{0, 0, 0}, {5, 5, 5}, {128, 128, 128}, {300, 0x81, 256}, {32512, 0xff, 32512}} {
		eachRole(t, func(t *testing.T, role string) {
			config := rsocket.Config{RecvBuffer: 10001, RecvQueue: 100, Mappings: mappings.config}
			_, h := rawPair(t, role, config, rawConfig{})
			b := h.conn.PrivateData()
			hello := h.theirs()
			if hello.version != 1 || hello.flags != 2 || hello.credits != 100 || hello.table != mappings.wire {
				t.Errorf("%+v", hello)
			}
			if !bytes.Equal(b[4:7], []byte{0, 0, 0}) {
				t.Errorf("bytes 4 to 6 are %x", b[4:7])
			}
			if len(bytes.Trim(b[40:], "\x00")) > 0 {
				t.Errorf("%x follows", b[40:])
			}
			if hello.list.length != 2 || hello.data.length != 5001 {
				t.Errorf("%+v", hello)
			}
			// All of the list and the table can be written, and all of the first buffer.
			size := 32 + 24*mappings.table
			zeros := make([]byte, 1<<17)
			for at := 0; at < size; at += len(zeros) {
				to := hello.list
				to.addr += uint64(at)
				if !h.write(to, zeros[:min(size-at, len(zeros))]) {
					t.Fatalf("the table ends before byte %d of %d", at, size)
				}
			}
			if !h.write(hello.data, zeros[:5001]) {
				t.Error("the buffer cannot be written")
			}
		})
	}
}

// TestFirstMessages checks what is sent at once: the second half of the ring, for entry 1 of the list.
func TestFirstMessages(t *testing.T) {
	for _, bigEndian := range []bool{false, true} {
		eachRole(t, func(t *testing.T, role string) {
			config := rsocket.Config{RecvBuffer: 8192, RecvQueue: 50, Linger: time.Minute}
			c, h := rawPair(t, role, config, rawConfig{bigEndian: bigEndian})
			h.expect(4, 50, 16)
			first := h.theirs().data
			want := rawSGE{first.addr + 4096, first.key, 4096}
			if got := h.listed(1); got != want {
				t.Errorf("entry 1 is %+v, want %+v", got, want)
			}
			if h.listed(0) != (rawSGE{}) {
				t.Errorf("entry 0 is %+v", h.listed(0))
			}
			write(t, c, []byte("hello"))
			h.expect(0, 5, 5)
			if got := h.mr.Bytes()[:5]; string(got) != "hello" {
				t.Errorf("%q", got)
			}
			check(t, c.CloseWrite())
			h.expect(7, 2, 0)
			check(t, c.Close())
			h.expect(7, 0, 0)
		})
	}
}

// TestRing sends the data of several rounds to a raw peer, which announces its buffers one by one, and whose list has
// several numbers of entries, and compares each byte and each message.
func TestRing(t *testing.T) {
	for name, config := range map[string]rawConfig{
		"pairs":      {ring: 8192},
		"big-endian": {ring: 8192, bigEndian: true},
		"odd":        {ring: 2 * 4099},
		"tiny":       {ring: 14},
	} {
		eachRole(t, func(t *testing.T, role string) {
			c, h := rawPair(t, role, rsocket.Config{Inline: -1}, config)
			h.expect(4, 384, 16)
			b := data(5*h.ring/2 + 3)
			wrote := background(func() error { _, err := c.Write(b); return err })
			half, at, messages := 0, 0, 0
			for len(b) > 0 {
				end := (half + 1) * h.ring / 2
				for at < end && len(b) > 0 {
					op, n, length := h.next()
					if op != 0 || int(n) != length || at+length > end {
						t.Fatalf("%s: op %d, %d bytes of %d at %d of %d", name, op, n, length, at, end)
					}
					messages++
					if got := h.mr.Bytes()[at : at+length]; !bytes.Equal(got, b[:length]) {
						t.Fatalf("%s: %d bytes at %d have changed", name, length, at)
					}
					b, at = b[length:], at+length
				}
				half = (half + 1) % 2
				at = half * h.ring / 2
				if !h.announce(messages+h.receives, h.half(half)) {
					t.Fatal("not announced")
				}
			}
			check(t, within(t, wrote, "Write"))
		})
	}
}

// TestCredits checks that no more messages are sent than the peer permits, that control messages cost nothing, and that
// the limit is read modulo 65536.
func TestCredits(t *testing.T) {
	eachRole(t, func(t *testing.T, role string) {
		c, h := rawPair(t, role, rsocket.Config{}, rawConfig{receives: 3, posted: 64})
		h.expect(4, 384, 16)
		sent := background(func() error {
			for range 12 {
				if _, err := c.Write([]byte("x")); err != nil {
					return err
				}
			}
			return nil
		})
		received := 0
		for _, limit := range []int{3, 4, 65536 + 6, 7, 12} {
			if limit > 3 && !h.limit(limit) {
				t.Fatal("the connection has ended")
			}
			for ; received < limit%65536; received++ {
				h.expect(0, 1, 1)
			}
			h.quiet()
		}
		check(t, within(t, sent, "Write"))
	})
}

// TestGrants checks when the honest side announces credits and buffers: when half of the messages or of the ring has
// been read.
func TestGrants(t *testing.T) {
	eachRole(t, func(t *testing.T, role string) {
		c, h := rawPair(t, role, rsocket.Config{RecvBuffer: 8192, RecvQueue: 16}, rawConfig{entries: 3})
		h.expect(4, 16, 16)
		halves := []rawSGE{h.theirs().data, h.listed(1)}
		for round, want := range []int{2, 0, 1, 2, 0} { // entries in turn
			for range 2 { // half of the ring
				if !h.data(make([]byte, 2048)) {
					t.Fatal("no room")
				}
			}
			read(t, c, make([]byte, 4096))
			h.expect(4, uint32(16+2*(round+1)), 16)
			if got := h.listed(want); got != halves[round%2] {
				t.Errorf("entry %d is %+v, want %+v", want, got, halves[round%2])
			}
			h.target = halves[(round+1)%2]
		}
	})
}

// TestCreditGrants sends more short messages than 16 bits count. The honest side replies with credits, which have a
// buffer only from time to time.
func TestCreditGrants(t *testing.T) {
	c, h := rawPair(t, "server", rsocket.Config{RecvBuffer: 8192, RecvQueue: 1000}, rawConfig{})
	h.expect(4, 1000, 16)
	buffers, entry, limit, withBuffer := []rawSGE{h.listed(1)}, 0, 1000, 0
	for n := range 66000 {
		for n == limit || h.target.length == 0 && len(buffers) == 0 {
			op, data, length := h.next()
			if op != 4 || int(uint16(data)) != int(data)%65536 || data > 65535+1000 {
				t.Fatalf("op %d, data %d", op, data)
			}
			limit = n + int(uint16(int(data)-n))
			if length == 16 {
				buffers = append(buffers, h.listed(entry))
				entry ^= 1
				withBuffer++
			}
		}
		if h.target.length == 0 {
			h.target, buffers = buffers[0], buffers[1:]
		}
		if !h.data([]byte{byte(n)}) {
			t.Fatal("the connection has ended")
		}
		if n%100 == 99 {
			part := make([]byte, 100)
			for i := range part {
				part[i] = byte(n - 99 + i)
			}
			read(t, c, part)
		}
	}
	if withBuffer < 66000/4096-2 || withBuffer > 66000/4096 {
		t.Errorf("%d messages with a buffer", withBuffer)
	}
}

// TestPeerHello checks which private data of a peer are accepted.
func TestPeerHello(t *testing.T) {
	eachRole(t, func(t *testing.T, role string) {
		for name, config := range map[string]rawConfig{
			"no mappings": {change: func(b []byte) []byte { b[1] = 0; return b }},
			"longer":      {change: func(b []byte) []byte { return append(b, "something else"...) }},
			"reserved":    {change: func(b []byte) []byte { b[4], b[5], b[6] = 1, 2, 3; return b }},
			"flags":       {change: func(b []byte) []byte { b[1] |= 0xfc; return b }},
			"one entry":   {entries: 1},
			"no credits":  {change: func(b []byte) []byte { binary.BigEndian.PutUint16(b[2:], 0); return b }},
			"no buffer":   {change: func(b []byte) []byte { binary.BigEndian.PutUint32(b[36:], 0); return b }},
		} {
			t.Run(name, func(t *testing.T) {
				c, h := rawPair(t, role, rsocket.Config{}, config)
				h.expect(4, 384, 16)
				if h.entries == 1 && h.listed(0) == (rawSGE{}) {
					t.Error("the only entry is not written")
				}
				if name == "no credits" {
					h.limit(h.receives)
				}
				if name == "no buffer" {
					h.announce(h.receives, h.half(0))
				}
				write(t, c, []byte("hello"))
				h.expect(0, 5, 5)
				if !h.data([]byte("reply")) {
					t.Fatal("not sent")
				}
				read(t, c, []byte("reply"))
			})
		}
	})
}

// TestMappingEntries checks the entries of mappings in both directions and both byte orders.
func TestMappingEntries(t *testing.T) {
	for _, bigEndian := range []bool{false, true} {
		eachRole(t, func(t *testing.T, role string) {
			c, h := rawPair(t, role, rsocket.Config{Mappings: 3}, rawConfig{bigEndian: bigEndian, table: 2})
			h.expect(4, 384, 16)
			memory := make([]byte, 100)
			m := must(c.MapMemory(memory, 1<<40))(t)
			h.expect(6, 0, 24)
			b := h.mr.Bytes()[h.tableAt():]
			o := h.order()
			to := rawSGE{o.Uint64(b[8:]), o.Uint32(b[16:]), o.Uint32(b[20:])}
			if o.Uint64(b) != 1<<40 || to.length != 100 {
				t.Errorf("entry %x", b[:24])
			}
			if !h.write(to, []byte("mapped")) || !h.data([]byte("x")) {
				t.Fatal("not written")
			}
			read(t, c, []byte("x"))
			if string(memory[:6]) != "mapped" {
				t.Errorf("memory has %q", memory[:6])
			}
			check(t, m.Close())
			must(c.MapMemory(memory, -1))(t)
			h.expect(6, 0, 24)
			if o.Uint64(b) != to.addr {
				t.Errorf("the offset of an address is %#x, want %#x", o.Uint64(b), to.addr)
			}
			h.mapping(2, 5000, h.half(1))
			_, err := c.WriteAt([]byte("there"), 5003)
			check(t, err)
			write(t, c, []byte("y"))
			h.expect(0, 1, 1)
			if got := h.mr.Bytes()[h.ring/2+3:][:5]; string(got) != "there" {
				t.Errorf("%q", got)
			}
			_, err = c.WriteAt([]byte("there"), 4999)
			isError(t, err, rsocket.ErrMapping)
			_, err = c.WriteAt([]byte("there"), int64(5000+h.ring/2-4))
			isError(t, err, rsocket.ErrMapping)
		})
	}
}

// TestKeepAliveIsInvisible checks that a keepalive is no message.
func TestKeepAliveIsInvisible(t *testing.T) {
	_, h := rawPair(t, "client", rsocket.Config{KeepAlive: time.Millisecond}, rawConfig{})
	h.expect(4, 384, 16)
	h.quiet()
}
