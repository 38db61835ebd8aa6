package rdma

import (
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// used returns how many bytes of a listener's budget all peers use.
func used(c *Conn) int64 {
	_, all := c.account.budget.used.Used(netip.Addr{})
	return all
}

// TestCloseReleasesUnreceived closes a connection that has read a long message which the program has not received.
func TestCloseReleasesUnreceived(t *testing.T) {
	clients, servers, _ := honestConns(t, 2, &Options{Linger: -1},
		&ListenOptions{Options: Options{Linger: -1}, MaxMemory: 64 << 20, MaxMemoryPerPeer: -1})
	ctx, s := bounded(t), servers[0]
	for range 2 {
		if err := clients[0].Send(ctx, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := s.Recv(ctx)
	good(t, m, err)
	soon(t, "the second message is read", func() bool {
		s.mu.Lock()
		defer s.unlock()
		if s.waiters.Leader() == nil {
			s.harvest()
		}
		return s.count == 1 && s.arrived[s.first].large.done
	})
	m.Release()
	mayLose(t, s.Close())
	if n, want := used(servers[1]), servers[1].account.fixed; n != want {
		t.Errorf("%d bytes are used after Close, %d of them by the other connection", n, want)
	}
}

// TestRepliesWithoutMemory has calls fail because their receives cannot be registered.
func TestRepliesWithoutMemory(t *testing.T) {
	_, servers, m := honestConns(t, 1, nil, &ListenOptions{MaxMemory: 64 << 20, MaxMemoryPerPeer: -1})
	before := servers[0].account.fixed
	m.SetLimits(verbstest.Limits{Memlock: 4096})
	for range 3 {
		if _, err := servers[0].Call(bounded(t), []byte("x")); !errors.Is(err, uverbs.ErrMemlock) {
			t.Errorf("a call without memory for replies: %v", err)
		}
	}
	m.SetLimits(verbstest.Limits{})
	if after := servers[0].account.fixed; after != before {
		t.Errorf("%d bytes are used after calls that have failed, %d before", after, before)
	}
}

// TestOddMaxMessage has limits that are not powers of two, as the pieces of memory are: what Send accepts can be
// received.
func TestOddMaxMessage(t *testing.T) {
	o := &ListenOptions{Options: Options{MaxMessage: 48 << 20}, MaxMemory: 50 << 20, MaxMemoryPerPeer: 50 << 20}
	clients, servers, _ := honestConns(t, 1, nil, o)
	if err := clients[0].Send(bounded(t), make([]byte, 40<<20)); !errors.Is(err, ErrTooLong) {
		t.Errorf("a message for which there is no room: %v", err)
	}
	if err := clients[0].Send(bounded(t), make([]byte, 32<<20)); err != nil {
		t.Fatal(err)
	}
	m, err := servers[0].Recv(bounded(t))
	good(t, m, err).Release()
}

// TestRoomBesideIdleMemory has a listener accept as many connections as its limits permit when memory of earlier
// messages is idle.
func TestRoomBesideIdleMemory(t *testing.T) {
	clients, servers, there := honestConns(t, 1, nil, &ListenOptions{MaxMemory: 6 << 20, MaxMemoryPerPeer: -1})
	there.SetLimits(verbstest.Limits{Memlock: 8 << 20})
	ctx := bounded(t)
	for size := 512 << 10; size <= 2<<20; size *= 2 {
		if err := clients[0].Send(ctx, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		m, err := servers[0].Recv(ctx)
		good(t, m, err).Release()
	}
	if idle := servers[0].pool.idle; idle < 3<<20 {
		t.Fatalf("%d bytes are idle", idle)
	}
	room := servers[0].account.budget.total - used(servers[0])
	o := *servers[0].options
	for range room / o.connMemory() {
		there.Run(func() {
			c := newConn(servers[0].cm, &o)
			c.account.budget = servers[0].account.budget
			c.pool = servers[0].pool
			if err := c.account.tryFixed(o.connMemory()); err != nil {
				t.Fatal(err)
			}
			c.makeRoom()
			if n := used(c) + int64(c.pool.idle); n > 6<<20 {
				t.Errorf("%d bytes are used and idle", n)
			}
			t.Cleanup(c.account.releaseFixed)
		})
	}
}

// TestIdleTimerHandlesFailure has the timer of Options.IdleTimeout find what ends the connection.
func TestIdleTimerHandlesFailure(t *testing.T) {
	c, h := hostilePair(t, &Options{IdleTimeout: time.Hour, KeepAlive: -1}, honestHello())
	if !h.send(kindReply, 0, 5, nil) {
		t.Fatal("not sent")
	}
	soon(t, "the timer finds it", func() bool { c.isIdle(time.Hour); return c.Err() != nil })
	if _, err := c.Recv(bounded(t)); !errors.Is(err, ErrProtocol) {
		t.Errorf("Recv returns %v", err)
	}
}

// TestIdleTimerHandlesEnd has the timer of Options.IdleTimeout find the orderly end of the peer.
func TestIdleTimerHandlesEnd(t *testing.T) {
	clients, servers, _ := honestConns(t, 1, nil, listening(&Options{IdleTimeout: time.Hour}))
	s, ctx := servers[0], bounded(t)
	if err := clients[0].Send(ctx, []byte("last")); err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv(ctx)
	good(t, m, err).Release()
	if err := clients[0].Close(); err != nil {
		t.Fatal(err)
	}
	soon(t, "the timer finds it", func() bool { s.isIdle(time.Hour); return s.Err() != nil })
	if s.isIdle(time.Hour) {
		t.Error("a connection that the peer has closed is idle")
	}
	if _, err := s.Recv(ctx); err != io.EOF {
		t.Errorf("Recv returns %v", err)
	}
}

// TestHookPanics has a function of a Trace panic: the connection can be used.
func TestHookPanics(t *testing.T) {
	clients, _, _ := honestConns(t, 1, &Options{Trace: &Trace{Ended: func(*Conn, error) { panic("hook") }}}, nil)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		clients[0].abort()
	}()
	if clients[0].Err() == nil {
		t.Error("the connection has not ended")
	}
}

// TestIdleConnHasEnded checks that a Client uses another connection after one that was closed because it was idle.
func TestIdleConnHasEnded(t *testing.T) {
	clients, _, _ := honestConns(t, 1, nil, nil)
	c := clients[0]
	if err := c.CloseWithError(CodeIdle, "idle"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(bounded(t)); !hasEnded(c, err) {
		t.Errorf("%v does not mean that the connection has ended", err)
	}
}
