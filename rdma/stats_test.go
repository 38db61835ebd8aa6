package rdma_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// TestStats checks each field of Stats while one side calls the other.
func TestStats(t *testing.T) {
	const depth, eager = 8, 1024
	p := connect(t, &rdma.Options{Depth: depth, EagerSize: eager}, &rdma.Options{Depth: depth, EagerSize: eager})
	ctx := limit(t)
	before := p.client.Stats()
	if before.Credits != depth || before.Registered < depth*eager || before.CallTimes.Count() != 0 {
		t.Errorf("of a new connection: %+v", before)
	}
	replies := background(func() error {
		m, err := p.client.Call(ctx, []byte("abc"))
		m.Release()
		return err
	})
	until(t, "the call arrives", func() bool { return received(p.server) })
	base := p.server.Stats()
	if base.Unreceived != 1 || base.CallsIn != 0 || base.Received != 0 {
		t.Errorf("before Recv: %+v", base)
	}
	m := must(p.server.Recv(ctx))(t)
	c, s := p.client.Stats(), p.server.Stats()
	if c.CallsOut != 1 || c.Credits != depth-1 || c.Sent != 1 || c.SentBytes != 3 || c.Registered <= before.Registered {
		t.Errorf("of the caller: %+v", c)
	}
	if s.Unreceived != 0 || s.CallsIn != 1 || s.Received != 1 || s.ReceivedBytes != 3 {
		t.Errorf("of the other side: %+v", s)
	}
	check(t, m.Reply(ctx, []byte("reply")))
	m.Release()
	check(t, within(t, replies, "Call"))
	c, s = p.client.Stats(), p.server.Stats()
	if c.CallsOut != 0 || c.CallTimes.Count() != 1 || c.CallTimes.Sum <= 0 || c.CallErrors != 0 || c.ReceivedBytes != 5 {
		t.Errorf("of the caller after the reply: %+v", c)
	}
	if s.CallsIn != 0 || s.Sent != base.Sent+1 || s.SentBytes != 5 {
		t.Errorf("of the other side after the reply: %+v", s)
	}
	canceled, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("stopped"))
	if _, err := p.client.Call(canceled, nil); err == nil {
		t.Fatal("a canceled call has a reply")
	}
	if c := p.client.Stats(); c.CallErrors != 1 || c.CallTimes.Count() != 1 {
		t.Errorf("after a canceled call: %+v", c)
	}
	pooled := p.client.Stats().Pooled
	b := must(p.client.Alloc(4 << 20))(t)
	if n := p.client.Stats().Pooled; n < pooled+4<<20 {
		t.Errorf("%d bytes are registered with a buffer of 4 MiB, and %d before", n, pooled)
	}
	b.Release()
	check(t, p.client.Close())
	if s := p.client.Stats(); s.Registered != 0 || s.Pooled != 0 || s.Credits != 0 || s.Sent != c.Sent {
		t.Errorf("after Close: %+v", s)
	}
}

// received reports whether a message of the peer waits to be received. Nothing else handles what arrives.
func received(c *rdma.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := c.Call(ctx, nil) // handles what has arrived
	return err != nil && c.Stats().Unreceived > 0
}

// TestStallTime checks that Stats has the time that calls have waited for credits.
func TestStallTime(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Depth: 1})
	ctx := limit(t)
	check(t, p.client.Send(ctx, nil))
	sent := background(func() error { return p.client.Send(ctx, nil) })
	until(t, "Send waits", func() bool { return p.client.Stats().Credits == 0 })
	for range 2 {
		must(p.server.Recv(ctx))(t).Release()
	}
	check(t, within(t, sent, "Send"))
	if s := p.client.Stats(); s.Stalls > 1 || (s.Stalls == 1) != (s.StallTime > 0) {
		t.Errorf("%d stalls take %v", s.Stalls, s.StallTime)
	}
}

// TestListenerAndClientStats has a client whose first attempt fails, and a listener that refuses one.
func TestListenerAndClientStats(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	var l *rdma.Listener
	p.onServer(func() {
		l = must(rdma.Listen(p.listenAddr(), &rdma.ListenOptions{Options: *silent, MaxConns: 1, MaxMemory: 1 << 30}))(t)
	})
	defer l.Close()
	served := background(func() error {
		return l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
			return c.ServeCalls(ctx, func(b []byte) []byte { return b })
		})
	})
	p.onClient(func() {
		cl := rdma.NewClient[int64](p.addr(l), nil)
		check(t, cl.Do(ctx, call))
		if s := cl.Stats(); s != (rdma.ClientStats{Connected: 1, Conns: 1}) {
			t.Errorf("of the client: %+v", s)
		}
		second := rdma.NewClient(p.addr(l), &rdma.ClientOptions[int64]{MinBackoff: time.Minute, MaxBackoff: time.Minute})
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		isError(t, second.Do(short, call), rdma.ErrServerLimit)
		if s := second.Stats(); s != (rdma.ClientStats{Failed: 1}) {
			t.Errorf("of the client that is refused: %+v", s)
		}
		s := l.Stats()
		if s.Accepted != 1 || s.Refused != 1 || s.MaxMemory != 1<<30 || s.Memory < 192<<10 || s.Memory > 1<<20 {
			t.Errorf("of the listener: %+v", s)
		}
		check(t, cl.Close())
		check(t, second.Close())
	})
	until(t, "the listener counts no memory", func() bool { return l.Stats().Memory == 0 })
	check(t, l.Close())
	check(t, within(t, served, "Serve"))
}
