package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/rdma"
)

// far makes rail 1 one that calls do not use while rail 0 works: its NUMA node has no CPU.
func (r *railed) far() {
	r.here[0].SetNUMANode(machine.CPUNode())
	r.here[1].SetNUMANode(1 << 20)
}

// TestRailUnusedEnds has the connection of a rail end that no call uses, as the other one is preferred. It is tried
// again.
func TestRailUnusedEnds(t *testing.T) {
	for _, k := range []struct {
		name string
		end  func(t *testing.T, r *railed, cl *rdma.Client[int])
		is   func(s rdma.RailStats) bool
	}{
		{"down and removed", func(t *testing.T, r *railed, cl *rdma.Client[int]) {
			r.here[1].SetPort(false)
			awaitUp(t, cl, 1, false)
			r.here[1].RemoveDevice()
		}, func(s rdma.RailStats) bool { return s.Failed > 1 && s.Err != nil && s.Conns == 0 }},
		{"far, and the server's removed", func(_ *testing.T, r *railed, _ *rdma.Client[int]) {
			r.there[1].RemoveDevice()
		}, func(s rdma.RailStats) bool { return s.Failed > 1 && s.Err != nil && s.Conns == 0 }},
		{"far, and the server restarts", func(t *testing.T, r *railed, _ *rdma.Client[int]) {
			r.stop()
			r.listen(t, r.reply, 0)
		}, func(s rdma.RailStats) bool { return s.Up && s.Connected > 1 && s.Err == nil }},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRailed(t, nil)
			r.far()
			ctx := limit(t)
			r.onClient(func() {
				cl := r.client(t, rdma.ClientOptions[int]{})
				awaitUp(t, cl, 0, true)
				awaitUp(t, cl, 1, true)
				k.end(t, r, cl)
				until(t, "rail 1 is tried again", func() bool {
					check(t, cl.Retry(ctx, request("x")))
					return k.is(cl.Rails()[1])
				})
				check(t, cl.Close())
			})
		})
	}
}

// TestRailUnusedIdle has the server close the connection of a rail that no call uses. The client connects it again.
func TestRailUnusedIdle(t *testing.T) {
	t.Parallel()
	r := newRailed(t, nil)
	r.stop()
	r.listen(t, r.reply, 100*time.Millisecond)
	r.far()
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		until(t, "rail 1 is connected again", func() bool {
			check(t, cl.Retry(ctx, request("x")))
			return cl.Rails()[1].Connected > 2
		})
		check(t, cl.Close())
	})
}

// TestRailUnusedReleased checks that a client releases a connection that has ended although no call is made.
func TestRailUnusedReleased(t *testing.T) {
	r := newRailed(t, nil)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		r.here[1].RemoveDevice()
		until(t, "one connection", func() bool { return cl.Stats().Conns == 1 })
		if s := cl.Rails()[1]; s.Up || s.Err == nil || s.Failed != 0 {
			t.Errorf("%+v", s)
		}
		check(t, cl.Close())
	})
}

// TestRailRetryGoesOn has Retry wait for a server that ends each connection, with messages of Setup that it has not
// received.
func TestRailRetryGoesOn(t *testing.T) {
	var r *railed
	sent := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	r = newRailed(t, func(ctx context.Context, c *rdma.Conn) error {
		k := 0
		if c.LocalAddr() == r.there[1].AddrPort(railPort) {
			k = 1
		}
		select {
		case <-sent[k]:
		case <-ctx.Done():
		}
		return c.Close()
	})
	r.onClient(func() {
		ctx, cancel := context.WithCancel(limit(t))
		defer cancel()
		var n atomic.Int64
		cl := r.client(t, rdma.ClientOptions[int]{Setup: func(ctx context.Context, c *rdma.Conn) (int, error) {
			k := 0
			if c.RemoteAddr() == r.there[1].AddrPort(railPort) {
				k = 1
			}
			if err := c.Send(ctx, []byte("hello")); err != nil {
				return 0, err
			}
			select {
			case sent[k] <- struct{}{}:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			<-c.CM().Disconnected()
			if n.Add(1) == 30 {
				cancel()
			}
			return 0, nil
		}})
		isError(t, cl.Retry(ctx, request("x")), context.Canceled)
		if s := cl.Rails(); s[0].Undelivered+s[1].Undelivered == 0 {
			t.Errorf("%+v", s)
		}
		mayLose(t, cl.Close()) // what Setup has sent
	})
}

// TestRailOthersUndelivered has a connection end with a message that the server has not received. Calls on the other
// rail succeed, and Rails says so.
func TestRailOthersUndelivered(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		defer r.net.Partition(r.here[1], r.there[1])()
		until(t, "a message on rail 1", func() bool {
			on1 := false
			check(t, cl.Do(ctx, func(ctx context.Context, c *rdma.Conn, _ int) error {
				if on1 = c.RemoteAddr() == r.there[1].AddrPort(railPort); on1 {
					return c.Send(ctx, []byte("one way"))
				}
				return nil
			}))
			return on1
		})
		r.here[1].RemoveDevice()
		for range 10 {
			called := false
			err := cl.Do(ctx, func(ctx context.Context, c *rdma.Conn, n int) error {
				called = true
				return request("x")(ctx, c, n)
			})
			if err != nil && !called {
				t.Errorf("Do has not called its function, with a rail that works: %v", err)
			}
		}
		until(t, "an undelivered message", func() bool {
			s := cl.Rails()
			return s[0].Undelivered == 0 && s[1].Undelivered == 1
		})
		check(t, cl.Close())
	})
}

// TestRailRetired checks that Rails says why a connection is not used any more.
func TestRailRetired(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		rail := 0
		err := cl.Do(ctx, func(_ context.Context, c *rdma.Conn, _ int) error {
			if c.RemoteAddr() == r.there[1].AddrPort(railPort) {
				rail = 1
			}
			return &rdma.CallError{Code: rdma.CodeUnavailable, Text: "not now"}
		})
		isCallError(t, err, rdma.CodeUnavailable, "not now")
		s := cl.Rails()[rail]
		if s.Up || s.Conns != 0 {
			t.Errorf("%+v", s)
		}
		isCallError(t, s.Err, rdma.CodeUnavailable, "not now")
		check(t, cl.Close())
	})
}

// TestRailSetupExits has Setup end its goroutine. The call gets an error, the connection is released, and the next call
// tries again.
func TestRailSetupExits(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		var exits atomic.Bool
		exits.Store(true)
		conns := make(chan *rdma.Conn, 100)
		cl := r.client(t, rdma.ClientOptions[int]{Setup: func(_ context.Context, c *rdma.Conn) (int, error) {
			if exits.Load() {
				conns <- c
				runtime.Goexit()
			}
			return 0, nil
		}})
		called := background(func() error { return cl.Do(ctx, request("x")) })
		if err := within(t, called, "Do"); err == nil {
			t.Error("Do returns nil")
		}
		isError(t, (<-conns).Err(), net.ErrClosed)
		exits.Store(false)
		check(t, cl.Do(ctx, request("x")))
		check(t, cl.Close())
	})
}

// TestClientSetupCloses has Setup close the client.
func TestClientSetupCloses(t *testing.T) {
	for _, rails := range []int{1, 2} {
		t.Run(fmt.Sprint(rails), func(t *testing.T) {
			r := newRailed(t, nil)
			ctx := limit(t)
			r.onClient(func() {
				var cl *rdma.Client[int]
				closed := make(chan error, 1)
				once := sync.OnceFunc(func() {
					select {
					case err := <-background(cl.Close):
						closed <- err
					case <-time.After(patience):
						closed <- errors.New("Close in Setup does not return")
					}
				})
				o := rdma.ClientOptions[int]{Rails: r.rails[1:rails]}
				o.LocalAddr, o.Linger = r.rails[0].LocalAddr, -1
				o.Setup = func(context.Context, *rdma.Conn) (int, error) { once(); return 0, nil }
				cl = rdma.NewClient(r.rails[0].Addr, &o)
				isError(t, cl.Do(ctx, request("x")), net.ErrClosed)
				check(t, <-closed)
				check(t, cl.Close())
			})
		})
	}
}
