package rdma

import (
	"errors"
	"io"
	"testing"
)

// FuzzSealedPeer plays what bytes say against a sealed connection, as FuzzPeer does: three of them are the immediate
// data of a SEND, the length of its body and its first byte. The peer has the keys, and seals it unless a bit of the
// second is set. Whatever comes, calls return within their context, and nothing that is not sealed is received.
func FuzzSealedPeer(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0x10, 0, 2, 0x30, 0, 48})
	f.Add([]byte{0, 0, 1, 0, 0x80, 1})
	f.Add([]byte{0xd0, 0, 0, 0x80, 0, 8, 0x60, 0, 14})
	f.Add([]byte{0x90, 1, 40, 0xa0, 0, 4, 0x70, 1, 0, 0x30, 0, 24})
	f.Fuzz(func(t *testing.T, script []byte) {
		c, s := sealedSides(t, Options{Depth: 4})
		ended, forged := make(chan error, 1), false
		go func() { ended <- honestProgram(bounded(t), s) }()
		for ; len(script) >= 3 && !forged && c.Err() == nil; script = script[3:] {
			body := make([]byte, int(script[2])%100)
			for i := range body {
				body[i] = script[0]
			}
			k, number := kind(script[0]>>4), int(script[1]&0x7f)
			fr := frame{packImm(k, credits{messages: int(script[0] & 3)}, number), body}
			if forged = script[1]&0x80 != 0; !forged {
				fr = c.sealFrame(t, k, number, body)
			}
			c.postFrame(t, fr)
		}
		if !forged {
			c.postFrame(t, c.sealFrame(t, kindEnd, 0, (&farewell{}).appendTo(nil)))
		}
		if err := c.cm.ID().ID.Disconnect(); err != nil && c.Err() == nil {
			t.Error(err)
		}
		switch err := <-ended; {
		case err == io.EOF && forged:
			t.Error("io.EOF after what is not sealed")
		case err != io.EOF && !errors.Is(err, ErrDisconnected):
			t.Error(err)
		}
	})
}
