package rsocket_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/rsocket"
)

var dataOf sync.Map // of type []byte, by length

// data returns n bytes, which depend on n only. They must not be changed.
func data(n int) []byte {
	if b, ok := dataOf.Load(n); ok {
		return b.([]byte)
	}
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	dataOf.Store(n, b)
	return b
}

// TestStream sends data of many lengths in both directions, and compares it.
func TestStream(t *testing.T) {
	for name, config := range map[string]rsocket.Config{
		"defaults": {},
		"small":    {RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16, Inline: -1, Polling: -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, config, config)
			for _, n := range []int{1, 63, 64, 65, 2047, 2048, 2049, 4096, 65536, 131073, 1 << 20, 5<<20 + 7} {
				p.exchange(t, data(n))
			}
		})
	}
}

// exchange sends b to the server, which sends it back.
func (p *pair) exchange(t *testing.T, b []byte) {
	t.Helper()
	echoed := make(chan error, 1)
	go func() {
		_, err := io.CopyN(p.server, p.server, int64(len(b)))
		echoed <- err
	}()
	wrote := make(chan error, 1)
	go func() {
		_, err := p.client.Write(b)
		wrote <- err
	}()
	got := make([]byte, len(b))
	_, err := io.ReadFull(p.client, got)
	check(t, err)
	check(t, <-wrote)
	check(t, <-echoed)
	if !bytes.Equal(got, b) {
		t.Fatalf("%d bytes have changed", len(b))
	}
}
