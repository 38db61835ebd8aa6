package rsocket_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// TestSlowHandshakes checks that peers that do not finish their handshakes do not delay others.
func TestSlowHandshakes(t *testing.T) {
	p := machines(t)
	slow := p.net.Machine()
	defer p.net.AddHandshakeFault(verbstest.HandshakeFault{Message: verbstest.RTU, From: slow, Action: verbstest.Drop})()
	lc := &rsocket.ListenConfig{MaxHandshakes: 8, HandshakeTimeout: time.Minute}
	var l *rsocket.Listener
	var served <-chan error
	p.onServer(func() {
		l = must(lc.Listen(t.Context(), "tcp", ":7471"))(t).(*rsocket.Listener)
		served = background(func() error {
			for range 3 {
				c, err := l.AcceptConn()
				if err != nil {
					return err
				}
				_, err = io.Copy(c, c)
				if err = errors.Join(err, c.Close()); err != nil {
					return err
				}
			}
			return nil
		})
	})
	slow.Run(func() {
		for range 7 { // they get the reply, and take the connection for established
			c := must(rsocket.Dial("tcp", p.addr(l)))(t)
			defer func() { _ = c.Close() }() // it may have been rejected meanwhile
		}
	})
	p.onClient(func() {
		for range 3 {
			c := must(rsocket.Dial("tcp", p.addr(l)))(t)
			write(t, c, []byte("hello"))
			read(t, c, []byte("hello"))
			check(t, c.Close())
		}
	})
	check(t, within(t, served, "the server"))
	check(t, l.Close())
}
