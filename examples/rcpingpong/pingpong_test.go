package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

func TestFill(t *testing.T) {
	page := os.Getpagesize()
	b := make([]byte, page+2)
	fill(b, false)
	if !bytes.Equal(b, bytes.Repeat([]byte{0x7b}, len(b))) {
		t.Error("without -c a message is not all 0x7b")
	}
	fill(b, true)
	for i, v := range b {
		want := byte(0x7b)
		if i == 0 || i == page {
			want = 0
		}
		if v != want {
			t.Fatalf("byte %d is %#x, want %#x", i, v, want)
		}
	}
}

func TestVerifier(t *testing.T) {
	buf := make([]byte, 8192)
	v := newVerifier(buf)
	fill(buf, true)
	if err := v.message(); err != nil {
		t.Fatal(err)
	}
	if err := v.message(); err == nil {
		t.Error("the message before passed for a new one")
	}
	fill(buf, true)
	buf[4097]++
	if err := v.message(); err == nil || !strings.Contains(err.Error(), "byte 4097 is 0x7c, not 0x7b") {
		t.Errorf("error %v", err)
	}
	fill(buf, false) // a peer without -c
	if err := v.message(); err == nil || !strings.Contains(err.Error(), "without -c") {
		t.Errorf("error %v", err)
	}
}

func TestReport(t *testing.T) {
	var b strings.Builder
	opt := defaults()
	if err := report(&b, opt, 822800*time.Microsecond); err != nil {
		t.Fatal(err)
	}
	const want = "8192000 bytes in 0.82 seconds = 79.65 Mbit/sec\n1000 iters in 0.82 seconds = 822.80 usec/iter\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
