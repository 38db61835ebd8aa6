package rdma

import (
	"testing"
	"time"
)

// TestNotIdle checks when a connection is idle: not while something arrives, also if no call waits for it, and not
// while the peer waits for this side.
func TestNotIdle(t *testing.T) {
	clients, servers, _ := honestConns(t, 1, nil, listening(&Options{IdleTimeout: time.Hour}))
	c, s, ctx := clients[0], servers[0], bounded(t)
	idle := func(when string, want ...bool) {
		t.Helper()
		for i, want := range want {
			if s.isIdle(time.Hour) != want {
				t.Fatalf("%s: after %d periods, the connection is idle: %v", when, i+1, !want)
			}
		}
	}
	arrives := func() { soon(t, "a message arrives", func() bool { return !s.isIdle(time.Hour) }) }
	recv := func(c *Conn) Message {
		m, err := c.Recv(ctx)
		return good(t, m, err)
	}
	send := func(c *Conn) {
		t.Helper()
		if err := c.Send(ctx, []byte("message")); err != nil {
			t.Fatal(err)
		}
	}
	idle("at first", true)
	called := make(chan error, 1)
	go func() {
		m, err := c.Call(ctx, []byte("takes long"))
		m.Release()
		called <- err
	}()
	request := recv(s)
	request.Release()
	idle("before the reply", false, false, false)
	if err := request.Reply(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-called; err != nil {
		t.Fatal(err)
	}
	idle("after the reply", false, true)

	send(c)
	held := recv(s)
	idle("with a message that is not released", false, false, false)
	held.Release()
	idle("after its release", false, true)

	send(c)
	arrives()
	idle("with a message that was not received", false, false)
	recv(s).Release()
	idle("after it was received", false, true)

	send(s)
	m := recv(c)
	idle("after a message of this side", true)
	m.Release()
}
