package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/memlock"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// accepting listens on a machine, and accepts connections until the test ends.
func accepting(t *testing.T, m *verbstest.Machine, o *ListenOptions) (l *Listener, conns <-chan *Conn) {
	t.Helper()
	accepted := make(chan *Conn, 1000)
	ctx := t.Context()
	done := make(chan struct{})
	m.Run(func() {
		var err error
		l, err = Listen(":0", o)
		good(t, l, err)
		go func() {
			defer close(done)
			for {
				c, err := l.Accept(ctx)
				if err != nil {
					if c != nil || ctx.Err() == nil && !strings.Contains(err.Error(), "closed") {
						t.Error(err)
					}
					return
				}
				accepted <- c
			}
		}()
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return l, accepted
}

// dialTo dials from a machine.
func dialTo(t *testing.T, from, to *verbstest.Machine, l *Listener) (c *Conn, err error) {
	from.Run(func() { c, err = Dial(bounded(t), to.AddrPort(l.Addr().Port()).String(), nil) })
	return c, err
}

// closeAll closes both ends of connections.
func closeAll(t *testing.T, conns ...*Conn) {
	t.Helper()
	done := make(chan error, len(conns))
	for _, c := range conns {
		go func() { done <- c.Close() }()
	}
	for range conns {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestIdlePeersOfOneHost checks that clients of one host get a part of the memory that a process may lock only, that
// they read why they are refused, and that those of another host are served.
func TestIdlePeersOfOneHost(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, idle, other := n.Machine(), n.Machine(), n.Machine()
	server.SetLimits(verbstest.Limits{Memlock: 8 << 20})
	refused := make(chan error, 10)
	l, accepted := accepting(t, server, &ListenOptions{Refused: func(_ netip.AddrPort, err error) { refused <- err }})
	var all []*Conn
	for {
		c, err := dialTo(t, idle, server, l)
		if err != nil {
			if !errors.Is(err, ErrServerLimit) || !errors.Is(err, cm.ErrRejected) ||
				!strings.Contains(err.Error(), "MaxMemoryPerPeer: 196608 bytes wanted, ") ||
				!strings.Contains(err.Error(), " of 3145728 in use") {
				t.Errorf("after %d connections: %v", len(all)/2, err)
			}
			break
		}
		all = append(all, c, <-accepted)
	}
	if why := <-refused; !errors.Is(why, cm.ErrServerLimit) || !strings.Contains(why.Error(), "MaxMemoryPerPeer") {
		t.Errorf("the server refuses it because of %v", why)
	}
	if k := len(all) / 2; k < 8 || k > 14 {
		t.Errorf("%d connections of one host are accepted", k)
	}
	for range 3 {
		c, err := dialTo(t, other, server, l)
		good(t, c, err)
		all = append(all, c, <-accepted)
	}
	closeAll(t, all[:2]...)
	c, err := dialTo(t, idle, server, l)
	good(t, c, err)
	all = append(all[2:], c, <-accepted)
	closeAll(t, all...)
	if _, used := l.budget.used.Used(netip.Addr{}); used != 0 {
		t.Errorf("%d bytes are in use without a connection", used)
	}
}

// TestMaxConns checks that a listener passes the limits on connections on.
func TestMaxConns(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client, other := n.Machine(), n.Machine(), n.Machine()
	refused := make(chan netip.AddrPort, 2)
	l, accepted := accepting(t, server, &ListenOptions{MaxConns: 3, MaxConnsPerPeer: 1,
		Refused: func(peer netip.AddrPort, _ error) { refused <- peer }})
	var all []*Conn
	for _, m := range []*verbstest.Machine{client, other} {
		c, err := dialTo(t, m, server, l)
		good(t, c, err)
		all = append(all, c, <-accepted)
		if _, err := dialTo(t, m, server, l); !errors.Is(err, ErrServerLimit) {
			t.Errorf("another connection of the host: %v", err)
		}
		if peer := <-refused; peer.Addr() != c.LocalAddr().Addr() {
			t.Errorf("%v is refused, want %v", peer, c.LocalAddr())
		}
	}
	closeAll(t, all...)
}

// TestConnMemory checks that a connection is counted with about the memory that it pins.
func TestConnMemory(t *testing.T) {
	for _, o := range []*Options{nil, {Depth: 500, EagerSize: 1000}, {Depth: 1, EagerSize: 64 << 10}, {Offers: 32}} {
		_, servers, m := honestConns(t, 1, nil, listening(o))
		counted := servers[0].account.fixed
		m.Run(func() {
			_, pinned := machine.Current().(interface{ Memlock() (_, _ uint64) }).Memlock()
			if actual := int64(pinned); counted < actual*3/4 || counted > actual*5/4 {
				t.Errorf("%+v: %d bytes are counted, %d pinned", o, counted, actual)
			}
			t.Logf("%d bytes are counted, %d pinned", counted, pinned)
		})
	}
}

// TestFalseOffers checks that nothing large is registered for messages that do not exist, or not as a whole.
func TestFalseOffers(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	for name, o := range map[string]offer{
		"nothing": {key: 0x12345, addr: 0x1000, length: 64 << 20},
		"its end": {key: h.mr.RKey(), addr: h.mr.Addr(), length: 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			c, h := c, h
			if name == "its end" {
				c, h = hostilePair(t, nil, honestHello())
				o.key, o.addr = h.mr.RKey(), h.mr.Addr()
			}
			if !h.offer(o, 0) {
				t.Fatal("the offer is not sent")
			}
			_, err := c.Recv(h.ctx)
			if !errors.Is(err, ErrDisconnected) || !errors.Is(err, uverbs.WCRemAccessErr) ||
				!strings.Contains(err.Error(), "offered message cannot be read") {
				t.Errorf("Recv returns %v", err)
			}
			if n := c.pool.registered(); n > slabSize {
				t.Errorf("%d bytes are registered for a message that does not exist", n)
			}
		})
	}
}

// TestProofs checks which messages are proved: long ones, if memory must be registered and the peer has not sent one as
// long before.
func TestProofs(t *testing.T) {
	clients, servers, _ := honestConns(t, 1, nil, nil)
	c, s, ctx := clients[0], servers[0], bounded(t)
	for i, step := range []struct {
		length int
		posts  uint64 // requests of the receiver: a READ, and two if it is proved; and one that says so
	}{{100 << 10, 2}, {1 << 20, 4}, {1 << 20, 2}, {600 << 10, 2}, {300 << 10, 2}, {3 << 20, 4}, {2<<20 + 1, 2}} {
		before := s.tail
		b := make([]byte, step.length)
		b[0], b[len(b)-1] = 'a', byte(i)
		if err := c.Send(ctx, b); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv(ctx)
		good(t, m, err)
		if got := m.Bytes(); len(got) != len(b) || got[0] != 'a' || got[len(b)-1] != byte(i) {
			t.Errorf("message %d: other bytes", i)
		}
		m.Release()
		s.mu.Lock()
		if n := s.tail - before; n > step.posts || n < step.posts-1 {
			t.Errorf("message %d of %d bytes: %d requests, want %d", i, step.length, n, step.posts)
		}
		s.unlock()
	}
}

// TestMemoryWaits checks that a message which exceeds the limit waits until another is released, as long as its context
// and the patience permit, and is not lost.
func TestMemoryWaits(t *testing.T) {
	const size = 1 << 20
	o := &ListenOptions{Options: Options{MaxMessage: size}, MaxMemory: 3 << 20, MaxMemoryPerPeer: -1}
	clients, servers, _ := honestConns(t, 3, nil, o)
	ctx := bounded(t)
	b := servers[0].account.budget
	for i := range servers {
		if err := clients[i].Send(ctx, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	recv := func(i int) Message {
		m, err := servers[i].Recv(ctx)
		return good(t, m, err)
	}
	held := []Message{recv(0), recv(1)}
	b.patience = time.Millisecond
	if _, err := servers[2].Recv(ctx); !errors.Is(err, ErrMemoryLimit) || !strings.Contains(err.Error(), "MaxMemory") {
		t.Errorf("Recv returns %v", err)
	}
	b.patience = time.Minute
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := servers[2].Recv(short); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Recv returns %v", err)
	}
	received := make(chan Message, 1)
	go func() {
		m, err := servers[2].Recv(ctx)
		if err != nil {
			t.Error(err)
		}
		received <- m
	}()
	soon(t, "Recv waits for memory", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.claims) == 1
	})
	if err := clients[2].Send(ctx, []byte("beside")); err != nil { // the connection works meanwhile
		t.Fatal(err)
	}
	if err := servers[2].Send(ctx, []byte("beside")); err != nil {
		t.Fatal(err)
	}
	m, err := clients[2].Recv(ctx)
	good(t, m, err).Release()
	held[0].Release()
	if m := <-received; m.Len() != size {
		t.Errorf("a message of %d bytes", m.Len())
	} else {
		m.Release()
	}
	held[1].Release()
	short2 := recv(2)
	short2.Release()
	var fixed int64
	for _, s := range servers {
		fixed += s.account.fixed
	}
	if _, used := b.used.Used(netip.Addr{}); used != fixed {
		t.Errorf("%d bytes are in use, of which %d for messages, although all are released", used, used-fixed)
	}
}

// TestMemoryWaitEnds checks that the wait for memory ends with the connection, on either side.
func TestMemoryWaitEnds(t *testing.T) {
	for _, side := range []string{"this side", "the peer"} {
		const size = 1 << 20
		clients, servers, _ := honestConns(t, 2, &Options{Linger: -1}, &ListenOptions{MaxMemory: 2 << 20,
			MaxMemoryPerPeer: -1, Options: Options{MaxMessage: size, Linger: -1}})
		ctx := bounded(t)
		for i := range servers {
			if err := clients[i].Send(ctx, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		held, err := servers[0].Recv(ctx)
		good(t, held, err)
		ended := make(chan error, 1)
		go func() {
			_, err := servers[1].Recv(ctx)
			ended <- err
		}()
		b := servers[0].account.budget
		waits := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.claims)
		}
		soon(t, "Recv waits for memory", func() bool { return waits() == 1 })
		c := servers[1]
		if side == "the peer" {
			c = clients[1]
		}
		mayLose(t, c.Close())
		if err := <-ended; err == nil || errors.Is(err, ErrMemoryLimit) {
			t.Errorf("%s has closed the connection: Recv returns %v", side, err)
		}
		if waits() != 0 {
			t.Error("a call of a connection that has ended waits for memory")
		}
		held.Release()
	}
}

// TestClaims checks the order in which memory is granted.
func TestClaims(t *testing.T) {
	o := &ListenOptions{Options: Options{Depth: 1, EagerSize: 256, MaxMessage: 256}, MaxMemory: 1 << 20,
		MaxMemoryPerPeer: 768 << 10}
	full, err := o.complete()
	b, err := newBudget(good(t, full, err))
	good(t, b, err)
	peer := func(i int) *account {
		return &account{budget: b, peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
	}
	var order []string
	wait := func(name string, i int, n int64) *claim {
		k := &claim{peer: peer(i).peer, n: n, notify: func() { order = append(order, name) }}
		b.claim(k)
		return k
	}
	if err := errors.Join(peer(1).try(700<<10), peer(2).try(300<<10)); err != nil {
		t.Fatal(err)
	}
	wait("own limit", 1, 100<<10)
	large := wait("large", 3, 500<<10)
	wait("small", 3, 10<<10)
	if err := peer(4).try(1 << 10); err == nil {
		t.Error("a message is read before those that wait")
	}
	if len(order) != 0 {
		t.Errorf("granted: %v", order)
	}
	peer(2).release(300 << 10) // not enough for the large one, for which the small one waits
	if len(order) != 0 {
		t.Errorf("granted: %v", order)
	}
	if b.end(large) {
		t.Error("the large one is granted")
	}
	if got := fmt.Sprint(order); got != "[small]" {
		t.Errorf("granted after the large one has ended its wait: %v", got)
	}
	wait("large again", 3, 700<<10)
	peer(1).release(700 << 10)
	if got := fmt.Sprint(order); got != "[small own limit large again]" {
		t.Errorf("granted: %v", got)
	}
	if err := peer(4).try(1 << 10); err != nil {
		t.Errorf("nothing waits: %v", err)
	}
}

// TestMaxMessageOfMemory checks that a peer learns how long messages may be that the limit has room for, and that
// limits which have no room for a connection are refused.
func TestMaxMessageOfMemory(t *testing.T) {
	clients, _, _ := honestConns(t, 1, nil, &ListenOptions{MaxMemory: 5 << 20})
	err := clients[0].Send(bounded(t), make([]byte, 2<<20+1))
	if !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "2097152") {
		t.Errorf("Send returns %v", err)
	}
	verbstest.New(t).Run(func() {
		for _, o := range []*ListenOptions{{MaxMemory: 1000}, {MaxMemoryPerPeer: 100 << 10}} {
			_, err := Listen(":0", o)
			if !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), "MaxMemory") {
				t.Errorf("%+v: Listen returns %v", o, err)
			}
		}
	})
}

// TestDefaultMemory checks what limits the memory if no option does.
func TestDefaultMemory(t *testing.T) {
	m := verbstest.New(t)
	m.Run(func() {
		if n := memlock.Default(); n < 1<<20 {
			t.Errorf("%d bytes without a limit on locked memory", n)
		}
		m.SetLimits(verbstest.Limits{Memlock: 8 << 20})
		if n := memlock.Default(); n != 6<<20 {
			t.Errorf("%d bytes with 8 MiB that may be locked", n)
		}
	})
	for _, o := range []ListenOptions{{MaxMemory: -1, MaxMemoryPerPeer: -1}, {MaxMemory: -1}} {
		full, err := o.complete()
		b, err := newBudget(good(t, full, err))
		if b != nil || err != nil || full.MaxMessage != defaultMaxMessage {
			t.Errorf("%+v: %v, %v, messages of %d bytes", o, b, err, full.MaxMessage)
		}
	}
}

// TestClaimsOfOnePeer checks that a long message which waits for the limit of its peer is read before later, shorter
// ones of the same peer, and that other peers do not wait for it.
func TestClaimsOfOnePeer(t *testing.T) {
	o := &ListenOptions{Options: Options{Depth: 1, EagerSize: 256, MaxMessage: 256}, MaxMemory: 1 << 20,
		MaxMemoryPerPeer: 512 << 10}
	full, err := o.complete()
	b, err := newBudget(good(t, full, err))
	good(t, b, err)
	one := &account{budget: b, peer: netip.AddrFrom4([4]byte{192, 0, 2, 1})}
	other := &account{budget: b, peer: netip.AddrFrom4([4]byte{192, 0, 2, 2})}
	var order []string
	wait := func(name string, n int64) {
		b.claim(&claim{peer: one.peer, n: n, notify: func() { order = append(order, name) }})
	}
	if err := one.try(300 << 10); err != nil {
		t.Fatal(err)
	}
	wait("long", 400<<10)
	wait("short", 100<<10) // there is room
	if err := one.try(1 << 10); err == nil || len(order) != 0 {
		t.Errorf("later messages are read first: %v, %v", err, order)
	}
	if err := other.try(1 << 10); err != nil {
		t.Errorf("another peer waits: %v", err)
	}
	one.release(300 << 10)
	if got := fmt.Sprint(order); got != "[long short]" {
		t.Errorf("granted: %v", got)
	}
}
