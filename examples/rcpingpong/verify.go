package main

import (
	"bytes"
	"fmt"
	"os"
)

// filler is the byte that the messages of the C program are made of.
const filler = 0x7b

// fill writes the message. With check, the first byte of every page is zero,
// which is what the C server looks at.
func fill(b []byte, check bool) {
	for i := range b {
		b[i] = filler
	}
	if check {
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = 0
		}
	}
}

// A verifier holds received messages against what the peer should have sent.
// Either end sends the same message over and over, and a C server sends back
// what it got.
type verifier struct {
	buf  []byte // where messages arrive
	want []byte
	none []byte // differs from want in every byte
}

func newVerifier(buf []byte) *verifier {
	v := &verifier{buf: buf, want: make([]byte, len(buf)), none: make([]byte, len(buf))}
	fill(v.want, true)
	for i, b := range v.want {
		v.none[i] = ^b
	}
	copy(v.buf, v.none)
	return v
}

// message looks at the message that has arrived, and wipes it out, so that the
// next one cannot pass by what this one left. The peer does not send that
// before it has our answer.
func (v *verifier) message() error {
	if !bytes.Equal(v.buf, v.want) {
		for i := range v.buf {
			if v.buf[i] != v.want[i] {
				return fmt.Errorf("byte %d is %#02x, not %#02x: the message is damaged, or the peer was started without -c", i, v.buf[i], v.want[i])
			}
		}
	}
	copy(v.buf, v.none)
	return nil
}
