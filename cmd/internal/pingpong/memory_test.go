package pingpong

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

func TestFill(t *testing.T) {
	page := os.Getpagesize()
	for _, l := range []Layout{{Filler: 0x7b, Slots: 1}, {Filler: 0x7b, Slots: 1, Header: 40}, {Slots: 3}} {
		m := &Memory{layout: l, size: page + 2}
		m.fill(make([]byte, m.stride()), false)
		if !bytes.Equal(m.buf[l.Header:], bytes.Repeat([]byte{l.Filler}, page+2)) {
			t.Errorf("%+v: without -c a message is not all %#x", l, l.Filler)
		}
		m.fill(make([]byte, (1+l.Slots)*m.stride()), true)
		want := bytes.Repeat([]byte{l.Filler}, page+2)
		want[0], want[page] = 0, 0
		if !bytes.Equal(m.message(0), want) || !bytes.Equal(m.want, want) {
			t.Errorf("%+v: the message is not as the C server expects it", l)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, l := range []Layout{{Filler: 0x7b, Slots: 1}, {Filler: 0x7b, Slots: 2, Header: 40}} {
		m := &Memory{layout: l, size: 8192}
		m.fill(make([]byte, (1+l.Slots)*m.stride()), true)
		last := uint64(l.Slots)
		arrive := func() []byte { b := m.message(l.Slots); copy(b, m.want); return b }
		arrive()
		if err := m.check(last); err != nil {
			t.Fatal(err)
		}
		if err := m.check(last); err == nil {
			t.Error("the previous message was accepted as a new one")
		}
		arrive()[4097]++
		if err := m.check(last); err == nil || !strings.Contains(err.Error(), "byte 4097 is 0x7c, not 0x7b") {
			t.Errorf("error %v", err)
		}
		copy(arrive(), bytes.Repeat([]byte{0x7b}, 8192)) // a peer without -c
		if err := m.check(last); err == nil || !strings.Contains(err.Error(), "without -c") {
			t.Errorf("error %v", err)
		}
	}
	if err := (&Memory{size: 1, buf: []byte{1}}).check(0); err != nil {
		t.Errorf("without -c: %v", err)
	}
}

// TestReceives checks that every outstanding message has its own buffer when messages are checked.
func TestReceives(t *testing.T) {
	for _, c := range []struct {
		buffers, n int
		want       []uint64
	}{{1, 3, []uint64{0, 0, 0}}, {2, 3, []uint64{1, 1, 1}}, {4, 3, []uint64{1, 2, 3}}} {
		m := &Memory{}
		for i := range c.buffers {
			m.recvs = append(m.recvs, uverbs.RecvWR{WRID: uint64(i)})
		}
		var got []uint64
		for _, wr := range m.receives(c.n) {
			got = append(got, wr.WRID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d receives into %d buffers: %d, want %d", c.n, c.buffers, got, c.want)
		}
	}
}
