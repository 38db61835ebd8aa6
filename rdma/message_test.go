package rdma_test

import (
	"bytes"
	"io"
	"testing"
)

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// TestMessages sends messages of all kinds of lengths, and replies.
func TestMessages(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	lengths := []int{0, 1, 64, 128, 129, 4096, 4097, 65536, 1 << 20, 5 << 20}
	errs := make(chan error, 1)
	go func() {
		for i, n := range lengths {
			if err := p.client.Send(ctx, pattern(n, i)); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	for i, n := range lengths {
		m := must(p.server.Recv(ctx))(t)
		if !bytes.Equal(m.Bytes(), pattern(n, i)) {
			t.Errorf("message of %d bytes: %d other bytes", n, m.Len())
		}
		m.Release()
	}
	check(t, <-errs)
	check(t, p.client.Close())
	if _, err := p.server.Recv(ctx); err != io.EOF {
		t.Errorf("%v, want io.EOF", err)
	}
}
