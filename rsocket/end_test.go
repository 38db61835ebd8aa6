package rsocket_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestHalfClose ends the directions in all orders. What was written arrives, then io.EOF.
func TestHalfClose(t *testing.T) {
	type step func(t *testing.T, p *pair)
	closeWrite := func(t *testing.T, c *rsocket.Conn) { t.Helper(); check(t, c.CloseWrite()) }
	here := func(t *testing.T, p *pair) { closeWrite(t, p.client) }
	there := func(t *testing.T, p *pair) { closeWrite(t, p.server) }
	fromClient := func(t *testing.T, p *pair) { read(t, p.server, []byte("from client")); isEOF(t, p.server) }
	fromServer := func(t *testing.T, p *pair) { read(t, p.client, []byte("from server")); isEOF(t, p.client) }
	closeHere := func(t *testing.T, p *pair) { check(t, p.client.Close()) }
	closeThere := func(t *testing.T, p *pair) { check(t, p.server.Close()) }
	for name, steps := range map[string][]step{
		"client first":          {here, fromClient, there, fromServer},
		"client first, late":    {here, there, fromClient, fromServer},
		"server first":          {there, fromServer, here, fromClient},
		"both before any read":  {there, here, fromServer, fromClient},
		"closed unread":         {here, closeHere, fromClient, closeThere},
		"closed after EOF":      {here, fromClient, closeThere, fromServer, closeHere},
		"closed first":          {closeHere, fromClient, closeThere},
		"one after the other":   {closeHere, closeThere},
		"server closes first":   {closeThere, closeHere},
		"after the other's end": {here, there, closeHere, closeThere},
		"twice":                 {here, here, there, there, fromClient, fromServer, closeHere, closeHere, closeThere},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, rsocket.Config{}, rsocket.Config{})
			write(t, p.client, []byte("from client"))
			write(t, p.server, []byte("from server"))
			for _, s := range steps {
				s(t, p)
			}
		})
	}
}

// TestHalfCloseCarriesOn checks that the other direction works after the end of one, for more than the buffers hold.
func TestHalfCloseCarriesOn(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	check(t, p.client.CloseWrite())
	isEOF(t, p.server)
	b := data(1 << 20)
	wrote := background(func() error {
		_, err := p.server.Write(b)
		return errors.Join(err, p.server.CloseWrite())
	})
	read(t, p.client, b)
	isEOF(t, p.client)
	check(t, within(t, wrote, "Write"))
	_, err := p.client.Write([]byte("x"))
	isError(t, err, syscall.EPIPE)
	_, err = p.server.Write([]byte("x"))
	isError(t, err, syscall.EPIPE)
}

// TestCloseRead ends reads of this side only, then writes.
func TestCloseRead(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	waits := background(func() error { _, err := p.client.Read(make([]byte, 1)); return err })
	check(t, p.client.CloseRead())
	if err := within(t, waits, "Read"); err != io.EOF {
		t.Errorf("Read returns %v, want EOF", err)
	}
	write(t, p.client, []byte("still"))
	read(t, p.server, []byte("still"))
	write(t, p.server, []byte("unread"))
	check(t, p.client.CloseWrite())
	isEOF(t, p.server)
	_, err := p.server.Write([]byte("x"))
	isError(t, err, syscall.ECONNRESET)
}

// TestCloseWakes checks that Close ends all calls that wait, and that later calls fail.
func TestCloseWakes(t *testing.T) {
	config := rsocket.Config{RecvBuffer: 4096, SendBuffer: 4096, Polling: -1, Linger: 50 * time.Millisecond}
	for name, f := range map[string]func(c *rsocket.Conn) error{
		"Read":     func(c *rsocket.Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"WriteTo":  func(c *rsocket.Conn) error { _, err := c.WriteTo(io.Discard); return err },
		"Write":    func(c *rsocket.Conn) error { _, err := c.Write(make([]byte, 1<<20)); return err },
		"ReadFrom": func(c *rsocket.Conn) error { _, err := c.ReadFrom(zeros{}); return err },
		"WriteBuffers": func(c *rsocket.Conn) error {
			_, err := c.WriteBuffers(&net.Buffers{make([]byte, 1<<19), make([]byte, 1<<19)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, config, config)
			done := background(func() error { return f(p.client) })
			second := background(func() error { return f(p.client) })
			if name != "Read" && name != "WriteTo" {
				until(t, "data arrives", func() bool { return canRead(p.server) })
			}
			_ = p.client.Close() // the peer does not read: what was written may be lost
			isError(t, within(t, done, name), net.ErrClosed)
			isError(t, within(t, second, "the second "+name), net.ErrClosed)
			isError(t, within(t, background(func() error { return f(p.client) }), name+" after Close"), net.ErrClosed)
		})
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// canRead reports whether there is data to read, and reads a byte of it.
func canRead(c *rsocket.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	n, _ := c.Read(make([]byte, 1))
	_ = c.SetReadDeadline(time.Time{})
	return n > 0
}

// TestCallsAfterClose checks every other method after Close.
func TestCallsAfterClose(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{Mappings: 4})
	c := p.client
	mr := must(c.CM().PD().Alloc(4096, 0))(t)
	check(t, mr.Close())
	check(t, c.Close())
	for name, f := range map[string]func() error{
		"SetDeadline":      func() error { return c.SetDeadline(time.Now()) },
		"SetReadDeadline":  func() error { return c.SetReadDeadline(time.Time{}) },
		"SetWriteDeadline": func() error { return c.SetWriteDeadline(time.Now().Add(time.Hour)) },
		"CloseRead":        c.CloseRead,
		"CloseWrite":       c.CloseWrite,
		"MapMemory":        func() error { _, err := c.MapMemory(make([]byte, 100), 0); return err },
		"WriteAt":          func() error { _, err := c.WriteAt([]byte("x"), 0); return err },
	} {
		isError(t, within(t, background(f), name), net.ErrClosed)
	}
	check(t, c.Close())
	if c.LocalAddr() == nil || c.RemoteAddr() == nil {
		t.Error("no addresses")
	}
}

// TestUnreadData checks that data that has arrived is read although the connection has ended: by the peer's Close, also
// if a Write has found the end first.
func TestUnreadData(t *testing.T) {
	p := connect(t, rsocket.Config{Inline: -1}, rsocket.Config{})
	for range 40 { // more completions than one poll returns
		write(t, p.server, []byte("data"))
	}
	check(t, p.server.Close())
	until(t, "the end is known", func() bool { return p.client.CM().QP().State() == uverbs.StateErr })
	_, _ = p.client.Write([]byte("x")) // is flushed
	read(t, p.client, []byte(strings.Repeat("data", 40)))
	isEOF(t, p.client)
	_, err := p.client.Write([]byte("x"))
	isError(t, err, syscall.ECONNRESET)
	check(t, p.client.Close())
}

// TestBothEnd checks that what was written arrives if both sides end their direction at once, and one of them closes
// the connection while packets of its data are lost.
func TestBothEnd(t *testing.T) {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	p.dial(t, rsocket.Config{}, rsocket.Config{})
	remove := p.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, From: p.here, Count: 20})
	defer remove()
	write(t, p.client, []byte("from client"))
	check(t, p.client.CloseWrite())
	check(t, p.server.CloseWrite())
	isEOF(t, p.client)
	closed := background(p.client.Close)
	read(t, p.server, []byte("from client"))
	isEOF(t, p.server)
	check(t, within(t, closed, "Close"))
}

// TestLinger checks that Close waits for the peer's device as long as Config.Linger says.
func TestLinger(t *testing.T) {
	for name, linger := range map[string]time.Duration{"short": 20 * time.Millisecond, "none": -1} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, rsocket.Config{Linger: linger}, rsocket.Config{})
			remove := p.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, From: p.here})
			write(t, p.client, []byte("lost"))
			err := within(t, background(p.client.Close), "Close")
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "close" {
				t.Errorf("Close returns %v", err)
			}
			remove()
			isError(t, readEnd(t, p.server), syscall.ECONNRESET)
		})
	}
}

// TestNoLinger checks that a Close that does not linger reports nothing if everything has been received.
func TestNoLinger(t *testing.T) {
	p := connect(t, rsocket.Config{Linger: -1}, rsocket.Config{})
	check(t, p.client.Close())
	p = connect(t, rsocket.Config{Linger: -1}, rsocket.Config{})
	write(t, p.server, []byte("data"))
	read(t, p.client, []byte("data"))
	check(t, p.client.Close())
}
