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
	p := connect(t, rsocket.Config{KeepAlive: 5 * time.Millisecond, Linger: -1},
		rsocket.Config{IdleTimeout: 50 * time.Millisecond, KeepAlive: 5 * time.Millisecond, Linger: -1})
	err := readEnd(t, p.server)
	isError(t, err, rsocket.ErrIdle)
	isError(t, err, syscall.ECONNRESET)
	err = readEnd(t, p.client)
	isError(t, err, syscall.ECONNRESET)
	if errors.Is(err, rsocket.ErrIdle) {
		t.Errorf("the peer reads %v", err)
	}

	p = connect(t, rsocket.Config{Linger: -1}, rsocket.Config{IdleTimeout: 50 * time.Millisecond, Linger: -1})
	isError(t, readEnd(t, p.client), syscall.ECONNRESET)
	_, err = p.server.Write([]byte("x"))
	isError(t, err, rsocket.ErrIdle)
}

// TestBusy checks that messages in either direction keep a connection from being idle.
func TestBusy(t *testing.T) {
	t.Parallel() // it waits most of the time
	config := rsocket.Config{IdleTimeout: 4 * time.Second}
	for _, role := range roles {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			p := connect(t, config, config)
			from, to := p.client, p.server
			if role == "server" {
				from, to = to, from
			}
			for start := time.Now(); time.Since(start) < config.IdleTimeout*3/2; <-time.After(100 * time.Millisecond) {
				write(t, from, []byte("x"))
				read(t, to, []byte("x"))
			}
		})
	}
}
