package rsocket_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// TestIdleTimeout checks that a connection ends on which there are only keepalives, and one that no call waits for.
func TestIdleTimeout(t *testing.T) {
	const timeout = 3 * aliveTime
	p := connect(t, rsocket.Config{KeepAlive: aliveTime, Linger: -1},
		rsocket.Config{IdleTimeout: timeout, KeepAlive: aliveTime, Linger: -1})
	err := readEnd(t, p.server)
	isError(t, err, rsocket.ErrIdle)
	isError(t, err, syscall.ECONNRESET)
	err = readEnd(t, p.client)
	isError(t, err, syscall.ECONNRESET)
	if errors.Is(err, rsocket.ErrIdle) {
		t.Errorf("the peer reads %v", err)
	}

	p = connect(t, rsocket.Config{Linger: -1}, rsocket.Config{IdleTimeout: timeout, Linger: -1})
	isError(t, readEnd(t, p.client), syscall.ECONNRESET)
	_, err = p.server.Write([]byte("x"))
	isError(t, err, rsocket.ErrIdle)
}

// TestBusy checks that messages in either direction keep both sides of a connection from being idle, and that a
// connection without messages is.
func TestBusy(t *testing.T) {
	config := rsocket.Config{IdleTimeout: time.Hour, KeepAlive: -1, Linger: -1}
	for _, role := range roles {
		t.Run(role, func(t *testing.T) {
			p := connect(t, config, config)
			from, to := p.client, p.server
			if role == "server" {
				from, to = to, from
			}
			for range 10 {
				write(t, from, []byte("x"))
				read(t, to, []byte("x"))
				rsocket.CheckIdleLater(from)
				rsocket.CheckIdleLater(to)
			}
			for _, c := range []*rsocket.Conn{from, to} {
				until(t, "the connection is idle", func() bool {
					rsocket.CheckIdleLater(c)
					_, err := c.Write(nil)
					return errors.Is(err, rsocket.ErrIdle)
				})
			}
		})
	}
}
