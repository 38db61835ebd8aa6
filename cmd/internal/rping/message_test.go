package rping

import (
	"bytes"
	"testing"
)

func TestMessage(t *testing.T) {
	m := message{addr: 0x1122334455667788, rkey: 0x99aabbcc, size: 0xddeeff00}
	b := make([]byte, messageSize)
	m.put(b)
	want := []byte{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0}
	if !bytes.Equal(b, want) {
		t.Errorf("got % x, want % x", b, want)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte("0123456789abcdef"))
	f.Add([]byte("0123456789abcde"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if (err == nil) != (len(b) == messageSize) {
			t.Fatalf("%d bytes: error %v", len(b), err)
		}
		if err != nil {
			return
		}
		again := make([]byte, messageSize)
		m.put(again)
		if !bytes.Equal(again, b) {
			t.Errorf("% x became % x", b, again)
		}
	})
}
