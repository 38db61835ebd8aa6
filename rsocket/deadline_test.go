package rsocket_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// TestDeadlines sets deadlines in the past and in the future, before calls and while they wait.
func TestDeadlines(t *testing.T) {
	config := rsocket.Config{RecvBuffer: 4096, SendBuffer: 4096}
	p := connect(t, config, config)
	c := p.client
	readOne := func() error { _, err := c.Read(make([]byte, 1)); return err }
	writeMuch := func() error { _, err := c.Write(make([]byte, 1<<20)); return err }
	for name, f := range map[string]struct {
		call func() error
		set  func(time.Time) error
	}{
		"Read":     {readOne, c.SetReadDeadline},
		"Write":    {writeMuch, c.SetWriteDeadline},
		"WriteTo":  {func() error { _, err := c.WriteTo(io.Discard); return err }, c.SetDeadline},
		"ReadFrom": {func() error { _, err := c.ReadFrom(zeros{}); return err }, c.SetDeadline},
	} {
		isDeadline := func(done <-chan error) {
			t.Helper()
			err := within(t, done, name)
			isError(t, err, os.ErrDeadlineExceeded)
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("%s: %v is not a timeout", name, err)
			}
		}
		check(t, f.set(time.Now().Add(-time.Second)))
		isDeadline(background(f.call))
		check(t, f.set(time.Now().Add(5*time.Millisecond)))
		isDeadline(background(f.call))
		check(t, f.set(time.Time{}))
		waits := background(f.call)
		<-time.After(time.Millisecond)
		check(t, f.set(time.Now().Add(time.Hour)))
		check(t, f.set(time.Now().Add(2*time.Millisecond)))
		isDeadline(waits)
		check(t, f.set(time.Time{}))
		waits = background(f.call)
		check(t, f.set(time.Unix(1, 0)))
		isDeadline(waits)
		check(t, f.set(time.Time{}))
	}
	drained := background(func() error {
		for {
			if !canRead(p.server) {
				return nil
			}
			_, err := p.server.Read(make([]byte, 4096))
			check(t, err)
		}
	})
	check(t, within(t, drained, "Read"))
	check(t, p.server.SetDeadline(time.Now().Add(time.Minute)))
	check(t, c.SetDeadline(time.Now().Add(time.Minute)))
	write(t, p.server, []byte("usable"))
	read(t, c, []byte("usable"))
}

// TestLongPolling checks that deadlines and Close end calls that poll for long.
func TestLongPolling(t *testing.T) {
	p := connect(t, rsocket.Config{Polling: time.Hour}, rsocket.Config{})
	check(t, p.client.SetReadDeadline(time.Now().Add(time.Millisecond)))
	isError(t, readEnd(t, p.client), os.ErrDeadlineExceeded)
	check(t, p.client.SetReadDeadline(time.Time{}))
	waits := background(func() error { _, err := p.client.Read(make([]byte, 1)); return err })
	check(t, within(t, background(p.client.Close), "Close"))
	isError(t, within(t, waits, "Read"), net.ErrClosed)
}
