package rsocket_test

import (
	"io"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rsocket"
)

// TestWriteFillsWindow writes exactly what the peer has room for: Write does not wait for more room.
func TestWriteFillsWindow(t *testing.T) {
	config := rsocket.Config{RecvBuffer: 8192, Polling: -1}
	p := connect(t, config, config)
	b := data(8192)
	write(t, p.server, []byte("x")) // the client reads it, and finds the second half of the buffer
	read(t, p.client, []byte("x"))
	wrote := background(func() error { _, err := p.client.Write(b); return err })
	check(t, within(t, wrote, "Write"))
	copied := background(func() error { _, err := io.Copy(p.client, strings.NewReader("")); return err })
	check(t, within(t, copied, "io.Copy"))
	wrote = background(func() error { _, err := p.client.Write(nil); return err })
	check(t, within(t, wrote, "Write of nothing"))
	read(t, p.server, b)
}

// TestCopyFillsWindow copies exactly what the peer has room for.
func TestCopyFillsWindow(t *testing.T) {
	config := rsocket.Config{RecvBuffer: 8192, SendBuffer: 4096, Polling: -1}
	p := connect(t, config, config)
	write(t, p.server, []byte("x"))
	read(t, p.client, []byte("x"))
	b := data(8192)
	copied := background(func() error { _, err := io.Copy(p.client, strings.NewReader(string(b))); return err })
	check(t, within(t, copied, "io.Copy"))
	read(t, p.server, b)
}
