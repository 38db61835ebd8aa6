package rdma

import (
	"context"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// TestSharedPeerGone checks that calls on a connection with shared receives notice that the peer is gone without a
// keepalive: nothing of an SRQ is flushed.
func TestSharedPeerGone(t *testing.T) {
	o := Options{Linger: -1, KeepAlive: -1}
	clients, servers, _ := honestConns(t, 2, &o, &ListenOptions{SharedReceives: 16, Options: o})
	ctx := bounded(t)
	begun, handled := make(chan bool), make(chan error, 1)
	go func() {
		handled <- servers[0].Handle(ctx, func(ctx context.Context, _ *Request) ([]byte, error) {
			close(begun)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, nil)
	}()
	called := make(chan error, 1)
	go func() {
		_, err := clients[0].Call(ctx, nil)
		called <- err
	}()
	received := make(chan error, 1)
	go func() {
		_, err := servers[1].Recv(ctx)
		received <- err
	}()
	<-begun
	for _, c := range clients {
		// As the kernel does for a program that was killed. Whatever it returns, the calls below end.
		_ = c.cm.ID().ID.Disconnect()
	}
	for name, ended := range map[string]<-chan error{"Handle": handled, "Recv": received, "Call": called} {
		if err := <-ended; !errors.Is(err, ErrDisconnected) {
			t.Errorf("%s returns %v", name, err)
		}
	}
}

// TestSharedHookRuns checks that what the sweeper finds while a function of a Trace runs ends the connection.
func TestSharedHookRuns(t *testing.T) {
	n := verbstest.NewNetwork(t)
	n.Allow(verbstest.ReceiveLate, verbstest.NotReleased)
	c, h := hostileTo(t, n.Machine(), n.Machine(), &ListenOptions{SharedReceives: 16}, honestHello())
	begun, end, ended := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		c.mu.Lock()
		c.later(func() { close(begun); <-end }) // as Trace.Stalled
		c.unlock()
		close(ended)
	}()
	<-begun
	h.send(15, 0, 0, nil) // which is no kind
	c.shared.limitReached()
	soon(t, "the connection ends", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err != nil
	})
	close(end)
	<-ended
	if _, err := c.Recv(h.ctx); !errors.Is(err, ErrProtocol) {
		t.Errorf("Recv returns %v", err)
	}
}

// TestSharedShortEnds checks that clients get credits again when receives were short for a moment.
func TestSharedShortEnds(t *testing.T) {
	_, servers := sharedConns(t, 2, 64)
	s := servers[0].shared
	s.limitReached()
	soon(t, "receives are not short", func() bool { return !s.short.Load() })
	if n := s.posted.Load(); n != 64 {
		t.Errorf("%d of 64 receives are posted", n)
	}
}

// TestSharedBudget checks that shared receives count for no peer.
func TestSharedBudget(t *testing.T) {
	for _, c := range []struct {
		total, each int64
		ok          bool
	}{{256 << 20, 8 << 20, true}, {256 << 20, 1000, false}, {16 << 20, 8 << 20, false}} {
		o := &ListenOptions{SharedReceives: 4096, MaxMemory: c.total, MaxMemoryPerPeer: c.each}
		full, err := o.complete()
		good(t, full, err)
		if _, err := newBudget(full); (err == nil) != c.ok {
			t.Errorf("%d bytes, %d for each peer: %v", c.total, c.each, err)
		}
	}
}
