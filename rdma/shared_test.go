package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/verbstest"
)

// sharedConns is honestConns with shared receives.
func sharedConns(t testing.TB, n, receives int) (clients, servers []*Conn) {
	clients, servers, _ = honestConns(t, n, nil, &ListenOptions{SharedReceives: receives})
	return clients, servers
}

// TestSharedBurst has 200 clients send 50 messages each at once to a server that receives one connection after the
// other: all messages wait in a pool of 64 receives.
func TestSharedBurst(t *testing.T) {
	const n, each = 200, 50
	clients, servers := sharedConns(t, n, 64)
	ctx := bounded(t)
	var sending sync.WaitGroup
	for i, c := range clients {
		sending.Go(func() {
			for k := range each {
				if err := c.Send(ctx, fmt.Append(nil, i, " ", k)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i, c := range servers {
		for k := range each {
			m, err := c.Recv(ctx)
			good(t, m, err)
			if got, want := string(m.Copy()), fmt.Sprint(i, " ", k); got != want {
				t.Fatalf("received %q, want %q", got, want)
			}
		}
	}
	sending.Wait()
}

// TestSharedCalls has clients call a server whose handlers reply in any order.
func TestSharedCalls(t *testing.T) {
	const n, each = 10, 40
	clients, servers := sharedConns(t, n, 16)
	ctx, cancel := context.WithCancel(bounded(t))
	var serving, calling sync.WaitGroup
	for _, c := range servers {
		serving.Go(func() {
			if err := c.ServeCalls(ctx, func(b []byte) []byte { return b }); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	for i, c := range clients {
		for range 4 {
			calling.Go(func() {
				for k := range each {
					m, err := c.Call(ctx, fmt.Append(nil, i, " ", k))
					if err != nil {
						t.Error(err)
						return
					}
					if got, want := string(m.Copy()), fmt.Sprint(i, " ", k); got != want {
						t.Errorf("reply %q, want %q", got, want)
					}
				}
			})
		}
	}
	calling.Wait()
	cancel()
	serving.Wait()
}

// pinned returns how many bytes of locked memory a machine has.
func pinned(m *verbstest.Machine) (n int64) {
	m.Run(func() {
		_, p := machine.Current().(interface{ Memlock() (_, _ uint64) }).Memlock()
		n = int64(p)
	})
	return n
}

// TestSharedMemory checks how much memory is locked for each client: at most 16 KiB by default.
func TestSharedMemory(t *testing.T) {
	const n = 10
	n1 := verbstest.NewNetwork(t)
	server, client := n1.Machine(), n1.Machine()
	l, accepted := accepting(t, server, &ListenOptions{SharedReceives: 64})
	var all []*Conn
	dial := func() {
		c, err := dialTo(t, client, server, l)
		good(t, c, err)
		all = append(all, c, <-accepted)
	}
	dial()
	before := pinned(server)
	for range n {
		dial()
	}
	if each := (pinned(server) - before) / n; each > 16<<10 {
		t.Errorf("%d bytes are locked for a client", each)
	} else {
		t.Logf("%d bytes are locked for a client, %d for the first with %d receives", each, before, 64)
	}
	if fixed, want := all[1].account.fixed, int64(16<<10+2*defaultEager); fixed != want {
		t.Errorf("%d bytes are counted for a client, want %d with those of two messages", fixed, want)
	}
	closeAll(t, all...)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := pinned(server); n != 0 {
		t.Errorf("%d bytes are locked after the end", n)
	}
	if _, used := l.budget.used.Used(netip.Addr{}); used != 0 {
		t.Errorf("%d bytes are counted after the end", used)
	}
}

// TestSharedHeld has programs hold more messages than there are receives.
func TestSharedHeld(t *testing.T) {
	const n = 40
	clients, servers := sharedConns(t, n, 16)
	ctx := bounded(t)
	for range 3 {
		var sending sync.WaitGroup
		for i, c := range clients {
			sending.Go(func() {
				for k := range 2 {
					if err := c.Send(ctx, fmt.Append(nil, i, " ", k)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var held []Message
		for i, c := range servers {
			for k := range 2 {
				m, err := c.Recv(ctx)
				held = append(held, good(t, m, err))
				if got, want := string(m.Bytes()), fmt.Sprint(i, " ", k); got != want {
					t.Fatalf("received %q, want %q", got, want)
				}
			}
		}
		for i, m := range held {
			if got, want := string(m.Copy()), fmt.Sprint(i/2, " ", i%2); got != want {
				t.Errorf("a message that the program holds is %q, want %q", got, want)
			}
		}
		sending.Wait()
	}
}

// TestSharedStall checks that clients are served beside others, whose messages no program receives.
func TestSharedStall(t *testing.T) {
	const stalled = 30
	clients, servers := sharedConns(t, stalled+1, 16)
	ctx := bounded(t)
	for _, c := range clients[1:] {
		for range 2 {
			if err := c.Send(ctx, []byte("waits")); err != nil {
				t.Fatal(err)
			}
		}
	}
	served := make(chan error, 1)
	go func() { served <- servers[0].ServeCalls(ctx, func(b []byte) []byte { return b }) }()
	for range 200 {
		m, err := clients[0].Call(ctx, []byte("call"))
		good(t, m, err).Release()
	}
	closeAll(t, clients[0])
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, c := range servers[1:] {
		for range 2 {
			m, err := c.Recv(ctx)
			if got := string(good(t, m, err).Copy()); got != "waits" {
				t.Errorf("received %q", got)
			}
		}
	}
}

// TestSharedCallsBack has a server call its clients while messages of others have all receives.
func TestSharedCallsBack(t *testing.T) {
	const n = 20
	clients, servers := sharedConns(t, n, 16)
	ctx := bounded(t)
	var serving, calling sync.WaitGroup
	for _, c := range clients {
		for range 2 {
			if err := c.Send(ctx, []byte("waits")); err != nil {
				t.Fatal(err)
			}
		}
		serving.Go(func() {
			if err := c.ServeCalls(ctx, func(b []byte) []byte { return b }); err != nil {
				t.Error(err)
			}
		})
	}
	for _, c := range servers {
		for range 3 {
			calling.Go(func() {
				var held []Message
				for range 20 {
					m, err := c.Call(ctx, []byte("call"))
					if err != nil {
						t.Error(err)
						return
					}
					held = append(held, m)
				}
				for _, m := range held {
					if string(m.Copy()) != "call" {
						t.Error("another reply")
					}
				}
			})
		}
	}
	calling.Wait()
	for _, c := range servers {
		for range 2 {
			m, err := c.Recv(ctx)
			good(t, m, err).Release()
		}
	}
	closeAll(t, servers...)
	serving.Wait()
}

// TestSharedBeforeAccept has clients send before the server accepts them, more than there are receives.
func TestSharedBeforeAccept(t *testing.T) {
	const n = 20
	network := verbstest.NewNetwork(t)
	server, client := network.Machine(), network.Machine()
	ctx := bounded(t)
	var l *Listener
	server.Run(func() {
		var err error
		l, err = Listen(":0", &ListenOptions{SharedReceives: 16})
		good(t, l, err)
	})
	var all []*Conn
	for i := range n {
		c, err := dialTo(t, client, server, l)
		all = append(all, good(t, c, err))
		for range 2 {
			if err := c.Send(ctx, fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := map[string]int{}
	for range n {
		var c *Conn
		server.Run(func() {
			var err error
			c, err = l.Accept(ctx)
			good(t, c, err)
		})
		all = append(all, c)
		for range 2 {
			m, err := c.Recv(ctx)
			good(t, m, err)
			seen[string(m.Copy())]++
		}
	}
	for i := range n {
		if seen[fmt.Sprint(i)] != 2 {
			t.Errorf("%d messages of client %d", seen[fmt.Sprint(i)], i)
		}
	}
	closeAll(t, all[:n]...) // first: otherwise there may be no receive for one when its connection is closed
	closeAll(t, all[n:]...)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestSharedOutlives checks that connections go on after their listener was closed, and that a message may be released
// after its connection.
func TestSharedOutlives(t *testing.T) {
	network := verbstest.NewNetwork(t)
	server, client := network.Machine(), network.Machine()
	l, accepted := accepting(t, server, &ListenOptions{SharedReceives: 16})
	c, err := dialTo(t, client, server, l)
	good(t, c, err)
	s := <-accepted
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	ctx := bounded(t)
	for range 50 {
		if err := c.Send(ctx, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv(ctx)
		if got := string(good(t, m, err).Copy()); got != "hello" {
			t.Errorf("received %q", got)
		}
	}
	if err := c.Send(ctx, []byte("last")); err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv(ctx)
	good(t, m, err)
	closeAll(t, c, s)
	if got := string(m.Copy()); got != "last" {
		t.Errorf("after Close, the message is %q", got)
	}
	if n := pinned(server); n != 0 {
		t.Errorf("%d bytes are locked after the end", n)
	}
}

// TestSharedRemoval removes the device of a server while its clients send.
func TestSharedRemoval(t *testing.T) {
	clients, servers, m := honestConns(t, 10, &Options{Linger: -1},
		&ListenOptions{SharedReceives: 16, Options: Options{Linger: -1}})
	m.Allow(verbstest.ReceiveLate)
	ctx := bounded(t)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for clients[i].Send(ctx, []byte("x")) == nil {
			}
		})
		running.Go(func() {
			for {
				m, err := servers[i].Recv(ctx)
				if err != nil {
					if !errors.Is(err, ErrDisconnected) {
						t.Error(err)
					}
					return
				}
				m.Release()
			}
		})
	}
	soon(t, "messages arrive", func() bool { return servers[0].Stats().Received > 10 })
	m.RemoveDevice()
	for _, c := range clients { // their device would retransmit for long
		if err := c.cm.ID().ID.Disconnect(); err != nil {
			t.Error(err)
		}
	}
	running.Wait()
}

// TestSharedRemovalIdle checks that a listener gives up the receives of a device that is removed while nothing is sent.
func TestSharedRemovalIdle(t *testing.T) {
	_, servers, m := honestConns(t, 2, &Options{Linger: -1}, &ListenOptions{SharedReceives: 16,
		Options: Options{Linger: -1}})
	m.RemoveDevice()
	for _, c := range servers {
		<-c.cm.Disconnected()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	set := servers[0].sharing
	set.mu.Lock()
	defer set.mu.Unlock()
	if len(set.all) > 0 {
		t.Errorf("the listener keeps the receives of %d devices", len(set.all))
	}
}

// TestSharedOldPeer checks that a client of an earlier version gets no more credits than those in the hello.
func TestSharedOldPeer(t *testing.T) {
	network := verbstest.NewNetwork(t)
	network.Allow(verbstest.NotReleased)
	hi := honestHello()
	hi.features = featureCancel
	c, h := hostileTo(t, network.Machine(), network.Machine(), &ListenOptions{SharedReceives: 16}, hi)
	theirs, err := parseHello(h.conn.PrivateData(), server)
	if good(t, theirs, err); theirs.depth != 2 || theirs.window() != defaultDepth {
		t.Errorf("a depth of %d and a window of %d", theirs.depth, theirs.window())
	}
	done := make(chan error, 1)
	go func() {
		for {
			m, err := c.Recv(h.ctx)
			if err != nil {
				done <- err
				return
			}
			m.Release()
		}
	}()
	credits := theirs.depth
	for range 100 {
		for ; credits > 0; credits-- {
			if !h.send(kindMessage, 0, 0, []byte("x")) {
				t.Fatal(<-done)
			}
		}
		wc, err := h.conn.RecvComp(h.ctx)
		good(t, wc, err)
		if err := h.conn.PostRecv(wc.WRID, h.mr.SGE(int(wc.WRID)*4096, 4096)); err != nil {
			t.Fatal(err)
		}
		_, n, _ := unpackImm(wc.Imm)
		if credits += n.messages; credits > theirs.depth {
			t.Fatalf("%d credits", credits)
		}
	}
	h.end(farewell{})
	if err := <-done; err != io.EOF {
		t.Error(err)
	}
}

// TestSharedHostile checks that a peer which sends more than it has credits for ends its own connection only, and that
// its messages leave no receives behind.
func TestSharedHostile(t *testing.T) {
	network := verbstest.NewNetwork(t)
	network.Allow(verbstest.ReceiveLate, verbstest.CQOverrun, verbstest.NotReleased)
	server, other := network.Machine(), network.Machine()
	o := &ListenOptions{SharedReceives: 16, Options: Options{Linger: -1}}
	l, accepted := accepting(t, server, o)
	ctx := bounded(t)
	c, err := dialTo(t, other, server, l)
	good(t, c, err)
	s := <-accepted
	for _, flood := range []struct {
		k    kind
		n    int
		body string
	}{{kindMessage, 3, "x"}, {kindMessage, 15, "x"}, {kindMessage, 40, "x"}, {kindOffer, 1, "x"}, {kindReply, 1, ""},
		{kindCredits, 60, ""}, {kindEnd, 3, ""}} {
		h := &hostile{t: t, ctx: ctx}
		hi := honestHello()
		other.Run(func() {
			c, err := cm.Dial(ctx, server.AddrPort(l.Addr().Port()).String(), h.options(hi.bytes()))
			h.conn = good(t, c, err)
		})
		victim := <-accepted
		for range flood.n {
			if !h.send(flood.k, 0, 0, []byte(flood.body)) {
				break
			}
		}
		for range 30 { // more than there are receives
			if err := c.Send(ctx, []byte("x")); err != nil {
				t.Fatal(err)
			}
			m, err := s.Recv(ctx)
			good(t, m, err).Release()
		}
		if flood.k != kindCredits {
			for err = nil; err == nil; {
				_, err = victim.Recv(ctx)
			}
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("%d SENDs of kind %d: %v", flood.n, flood.k, err)
			}
		}
		h.close()
		mayLose(t, victim.Close())
	}
	for range 100 {
		if err := c.Send(ctx, []byte("x")); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv(ctx)
		good(t, m, err).Release()
	}
	closeAll(t, c, s)
}

// TestSharedClients has many clients of one listener.
func TestSharedClients(t *testing.T) { callFromMany(t, 300, 256) }

// callFromMany has n clients of one listener, which share receives, call at the same time.
func callFromMany(t *testing.T, n, receives int) {
	network := verbstest.NewNetwork(t)
	server, client := network.Machine(), network.Machine()
	l, accepted := accepting(t, server, &ListenOptions{SharedReceives: receives, MaxMemory: 1 << 30, MaxMemoryPerPeer: -1,
		MaxConnsPerPeer: -1})
	var all []*Conn
	var serving sync.WaitGroup
	ctx := t.Context()
	for range n {
		client.Run(func() {
			c, err := Dial(ctx, server.AddrPort(l.Addr().Port()).String(), &Options{Depth: 1, EagerSize: 256})
			all = append(all, good(t, c, err))
		})
		s := <-accepted
		all = append(all, s)
		serving.Go(func() {
			if err := s.ServeCalls(ctx, func(b []byte) []byte { return b }); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
	t.Logf("%d bytes are locked for %d clients", pinned(server), n)
	var calling sync.WaitGroup
	for i := range n {
		calling.Go(func() {
			m, err := all[2*i].Call(ctx, fmt.Append(nil, i))
			if err != nil {
				t.Error(err)
			} else if got := string(m.Copy()); got != fmt.Sprint(i) {
				t.Errorf("the reply to %d is %q", i, got)
			}
		})
	}
	calling.Wait()
	for i := range n {
		closeAll(t, all[2*i])
	}
	serving.Wait()
	for i := range n {
		closeAll(t, all[2*i+1])
	}
	if _, used := l.budget.used.Used(netip.Addr{}); used > l.options.sharedMemory() {
		t.Errorf("%d bytes are counted without a client", used)
	}
}
