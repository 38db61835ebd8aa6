package rsocket_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// FuzzPeer plays what bytes say against a connection: four of them are the operation, the low and the high bits of the
// immediate data, and the length of the payload. Whatever comes, calls return, with io.EOF or ECONNRESET at the end.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{0, 5, 0, 5, 4, 70, 0, 0, 4, 70, 0, 16, 6, 0, 0, 24, 7, 1, 0, 0, 7, 2, 0, 0})
	f.Add([]byte{0, 0, 16, 0, 0, 0, 16, 0, 0, 0, 16, 0, 4, 80, 0, 16, 4, 80, 0, 16, 4, 80, 0, 16})
	f.Add([]byte{8, 0, 0, 40, 9, 1, 2, 3, 10, 0, 0, 80, 7, 0, 0, 0, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		config := rsocket.Config{RecvBuffer: 8192, RecvQueue: 16, Mappings: 2, Linger: time.Microsecond}
		c, h := rawPair(t, "server", config, rawConfig{posted: 100, table: 1})
		ended := background(func() error { return honestProgram(c) })
		for ok := true; ok && len(script) >= 4; script = script[4:] {
			ok = h.play(script[0], script[1], script[2], script[3])
		}
		h.control(0)
		if err := h.conn.ID().ID.Disconnect(); err != nil {
			t.Error(err)
		}
		isEnd(t, within(t, ended, "a call"))
	})
}

// play does what four bytes of a script say. It returns false if the connection has ended.
func (h *raw) play(op, low, high, length byte) bool {
	for h.conn.QP().RecvsOutstanding() < 50 {
		h.next()
	}
	payload := bytes.Repeat([]byte{low}, int(length))
	list := h.theirs().list
	switch {
	case op < 8:
		to := h.target
		if op == 4 || op == 6 {
			to = list
		}
		return h.message(uint32(op), uint32(low)|uint32(high)<<8, to, payload)
	case op == 8:
		return h.write(list, payload[:min(len(payload), 80)]) // entries that cannot be
	case op == 9:
		return h.announce(int(low), rawSGE{h.mr.Addr() + uint64(high), h.mr.RKey(), uint32(length)})
	case op == 10:
		return h.mapping(int(low%2), uint64(high), h.half(0))
	}
	return h.message(0, uint32(low), h.target, nil)
}

// honestProgram reads, writes and maps memory until the connection ends.
func honestProgram(c *rsocket.Conn) error {
	memory := make([]byte, 100)
	buf := make([]byte, 4096)
	for {
		for _, f := range []func() error{
			func() error { _, err := c.Read(buf); return err },
			func() error { _, err := c.Write(buf[:100]); return err },
			func() error { _, err := c.WriteAt(buf[:10], 3); return err },
			func() error { _, err := c.MapMemory(memory, 7); return err },
		} {
			_ = c.SetDeadline(time.Now().Add(time.Millisecond))
			err := f()
			switch {
			case err == io.EOF:
				return nil
			case err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, rsocket.ErrMapping):
				return err
			}
		}
	}
}

// FuzzList announces buffers that bytes describe: an offset and a length of two bytes each. The honest side writes to
// them in turn, and nowhere else.
func FuzzList(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 1, 0, 100, 0, 255, 3, 1, 0, 1, 0})
	f.Add([]byte{0, 0, 200, 0, 100, 0, 200, 0})
	f.Add([]byte("buffers anywhere"))
	f.Fuzz(func(t *testing.T, script []byte) {
		c, h := rawPair(t, "server", rsocket.Config{Inline: -1, Linger: -1}, rawConfig{receives: 1000, posted: 1010})
		want := make([]byte, h.ring)
		at := h.half(0) // of what the honest side writes
		queued := []rawSGE{}
		wrote := background(func() error { _, err := c.ReadFrom(&counting{}); return err })
		position := 0
		for {
			for len(queued) < 1 && len(script) >= 4 {
				s := rawSGE{h.mr.Addr() + uint64(script[0]) + uint64(script[1])<<7, h.mr.RKey(),
					1 + uint32(script[2]) + uint32(script[3]&0x3f)<<8}
				script = script[4:]
				h.announce(1000, s)
				queued = append(queued, s)
			}
			if at.length == 0 {
				if len(queued) == 0 {
					break
				}
				at, queued = queued[0], queued[1:]
			}
			op, n, _ := h.next()
			if op == 4 {
				continue
			}
			if op != 0 || n > at.length {
				t.Fatalf("op %d, %d bytes of %d", op, n, at.length)
			}
			for i := range n {
				want[at.addr-h.mr.Addr()+uint64(i)] = byte(position)
				position++
			}
			at.addr, at.length = at.addr+uint64(n), at.length-n
		}
		h.quiet()
		if !bytes.Equal(h.mr.Bytes()[:h.ring], want) {
			t.Error("other bytes are written")
		}
		check(t, c.SetDeadline(time.Unix(1, 0)))
		isError(t, within(t, wrote, "ReadFrom"), os.ErrDeadlineExceeded)
	})
}

// counting is an endless reader of bytes that count.
type counting struct{ n byte }

func (c *counting) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = c.n
		c.n++
	}
	return len(b), nil
}
