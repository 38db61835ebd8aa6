package rping

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// TestText compares the texts with those of the C program.
func TestText(t *testing.T) {
	for _, c := range []struct {
		ping, size int
		want       string
	}{
		{0, 64, "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\x00"},
		{1, 64, "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs\x00"},
		{57, 24, "rdma-ping-57: zABCDEFGH\x00"},
		{58, 24, "rdma-ping-58: ABCDEFGHI\x00"},
		{10, 80, "rdma-ping-10: KLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ\x00"},
		{math.MaxInt32, minSize, "rdma-ping-2147483647: \x00"},
	} {
		b := make([]byte, c.size)
		putText(b, c.ping)
		if string(b) != c.want {
			t.Errorf("ping %d of %d bytes: got %q, want %q", c.ping, c.size, b, c.want)
		}
		if n := textLen(b); n != c.size {
			t.Errorf("ping %d of %d bytes: the text has %d", c.ping, c.size, n)
		}
	}
}

func TestTextLen(t *testing.T) {
	for text, want := range map[string]int{"": 0, "\x00": 1, "ab\x00cd\x00": 3, "abc": 3} {
		if got := textLen([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestCompare(t *testing.T) {
	a, b := make([]byte, 64), make([]byte, 64)
	putText(a, 7)
	putText(b, 7)
	if err := compare(a, b); err != nil {
		t.Error(err)
	}
	a[40]++
	if err := compare(a, b); err == nil || !strings.Contains(err.Error(), "data mismatch! byte 40 of 64 ") {
		t.Errorf("error %v", err)
	}
}

// FuzzText checks any size against the definition.
func FuzzText(f *testing.F) {
	f.Add(0, minSize)
	f.Add(123456, maxSize)
	f.Fuzz(func(t *testing.T, ping, size int) {
		ping &= math.MaxInt32
		size = minSize + (size&math.MaxInt32)%(maxSize-minSize+1)
		b := bytes.Repeat([]byte{0xee}, size)
		putText(b, ping)
		i := bytes.IndexByte(b, ' ') + 1
		for c := byte('A' + ping%58); i < size-1; i++ {
			if b[i] != c {
				t.Fatalf("ping %d of %d bytes: byte %d is %q, want %q", ping, size, i, b[i], c)
			}
			if c++; c > 'z' {
				c = 'A'
			}
		}
		if b[size-1] != 0 {
			t.Error("no NUL at the end")
		}
	})
}

func TestTextAllocatesNothing(t *testing.T) {
	b, c := make([]byte, 64), make([]byte, 64)
	ping := 0
	if n := testing.AllocsPerRun(100, func() {
		putText(b, ping)
		putText(c, ping)
		if compare(b, c) != nil || textLen(b) != len(b) {
			t.Fail()
		}
		ping++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
