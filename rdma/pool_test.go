package rdma

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// poolOn returns a pool on a machine in memory.
func poolOn(t *testing.T) (*pool, *verbstest.Machine) {
	t.Helper()
	m := verbstest.New(t)
	v, err := uverbs.Open(m.Device())
	good(t, v, err)
	pd, err := v.AllocPD()
	p := openPool(good(t, pd, err))
	t.Cleanup(func() {
		if err := errors.Join(p.close(), pd.Close(), v.Close()); err != nil {
			t.Error(err)
		}
	})
	return p, m
}

// soon waits until a condition holds.
func soon(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// takeAll returns n pieces of memory.
func takeAll(t *testing.T, p *pool, n, size int) []*memory {
	t.Helper()
	all := make([]*memory, n)
	for i := range all {
		m, err := p.get(size)
		all[i] = good(t, m, err)
	}
	return all
}

func putAll(p *pool, all []*memory) {
	for _, m := range all {
		p.put(m)
	}
}

// TestPoolShrinks checks that memory that a burst has needed is deregistered, whatever the length of its pieces, and
// that a slab of which one piece is in use is not.
func TestPoolShrinks(t *testing.T) {
	for _, size := range []int{100 << 10, 256 << 10, 10 << 20} {
		p, _ := poolOn(t)
		p.every = time.Millisecond
		burst := takeAll(t, p, 2*maxIdle/classSize(classOf(size)), size)
		kept := burst[len(burst)/2]
		copy(kept.bytes, "kept")
		if n := p.registered(); n < 2*maxIdle {
			t.Fatalf("pieces of %d bytes: %d bytes are registered", size, n)
		}
		for _, m := range burst {
			if m != kept {
				p.put(m)
			}
		}
		soon(t, "idle memory is deregistered", func() bool { return p.registered() <= int64(maxIdle+max(size, slabSize)*2) })
		if v := kept.mr.Len(); v == 0 || string(kept.bytes[:4]) != "kept" || p.registered() < maxIdle/2 {
			t.Errorf("pieces of %d bytes: memory in use, or too much, was deregistered: %d bytes are left", size, p.registered())
		}
		p.put(kept)
		if again := takeAll(t, p, 3, size); again[0] == again[1] || again[1] == again[2] {
			t.Error("a piece has two users")
		}
	}
}

// TestPoolKeeps checks that memory which is needed again and again stays registered, however long it is.
func TestPoolKeeps(t *testing.T) {
	p, m := poolOn(t)
	for _, size := range []int{10 << 20, 60 << 20, 70 << 20, 200 << 20} {
		putAll(p, takeAll(t, p, 2, size))
		before := m.Commands()
		for range 5 {
			putAll(p, takeAll(t, p, 2, size))
		}
		if n := m.Commands() - before; n != 0 {
			t.Errorf("%d commands for memory of %d bytes that was used a moment ago", n, size)
		}
	}
}

// TestPoolMemlock checks that memory that is not used gives way to memory that is needed.
func TestPoolMemlock(t *testing.T) {
	p, m := poolOn(t)
	m.SetLimits(verbstest.Limits{Memlock: 20 << 20})
	putAll(p, takeAll(t, p, 1, 16<<20))
	putAll(p, takeAll(t, p, 2, 8<<20))
	if _, err := p.get(32 << 20); !errors.Is(err, uverbs.ErrMemlock) {
		t.Errorf("more than the limit: %v", err)
	}
	putAll(p, takeAll(t, p, 1, 16<<20))
}

// TestPoolShares checks that callers which need short pieces at the same time register memory for them once.
func TestPoolShares(t *testing.T) {
	p, m := poolOn(t)
	m.SetCommandTime(10 * time.Millisecond)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := p.get(300); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := p.registered(); n != slabSize {
		t.Errorf("%d bytes are registered for 50 pieces of 512 bytes", n)
	}
}

// TestPoolCloseRace closes pools while memory is registered.
func TestPoolCloseRace(t *testing.T) {
	for i := range 20 {
		p, m := poolOn(t)
		p.mu.Lock()
		p.refs++
		p.mu.Unlock()
		m.SetCommandTime(time.Millisecond)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					m, err := p.get(slabSize << (i % 3))
					if err != nil {
						if !errors.Is(err, net.ErrClosed) {
							t.Error(err)
						}
						return
					}
					p.put(m)
				}
			})
		}
		soon(t, "memory is registered", func() bool { return p.registered() > 0 })
		poolsMu.Lock()
		p.refs = 1
		poolsMu.Unlock()
		if err := p.close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if n := p.registered(); n != 0 {
			t.Errorf("%d bytes are registered after close", n)
		}
		m.SetCommandTime(0)
		poolsMu.Lock()
		p.refs = 2 // for poolOn
		poolsMu.Unlock()
	}
}

// honestConns returns connections between two machines, with the machine of the servers.
func honestConns(t testing.TB, n int, client *Options, server *ListenOptions) (clients, servers []*Conn,
	m *verbstest.Machine) {
	t.Helper()
	network := verbstest.NewNetwork(t)
	here, there := network.Machine(), network.Machine()
	ctx := bounded(t)
	accepted := make(chan *Conn, n)
	var l *Listener
	there.Run(func() {
		var err error
		l, err = Listen(":0", server)
		good(t, l, err)
		go func() {
			for range n {
				c, err := l.Accept(ctx)
				if err != nil {
					t.Error(err)
				}
				accepted <- c
			}
		}()
	})
	for range n {
		here.Run(func() {
			c, err := Dial(ctx, there.AddrPort(l.Addr().Port()).String(), client)
			clients = append(clients, good(t, c, err))
		})
		servers = append(servers, <-accepted)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for i := range n {
			var closing sync.WaitGroup
			for _, c := range []*Conn{clients[i], servers[i]} {
				closing.Go(func() { mayLose(t, c.Close()) })
			}
			closing.Wait()
		}
	})
	return clients, servers, there
}

// TestRegistersAlone checks that calls of the same connection and of others go on while memory for a long message is
// registered.
func TestRegistersAlone(t *testing.T) {
	clients, servers, m := honestConns(t, 2, nil, nil)
	ctx := bounded(t)
	echo := func(i int) {
		b := make([]byte, 1000)
		if err := clients[i].Send(ctx, b); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			m, err := servers[i].Recv(ctx)
			good(t, m, err).Release()
		}
		if err := servers[i].Send(ctx, b); err != nil {
			t.Fatal(err)
		}
		m, err := clients[i].Recv(ctx)
		good(t, m, err).Release()
	}
	echo(1)
	grows := func() bool {
		p := servers[0].pool
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.grows != [classes]bool{}
	}
	for attempt := range 6 { // the machine may be slower than the kernel
		if err := clients[0].Send(ctx, make([]byte, slabSize<<(attempt+1))); err != nil {
			t.Fatal(err)
		}
		m.SetCommandTime(time.Second)
		received := make(chan Message, 1)
		go func() {
			m, err := servers[0].Recv(ctx)
			if err != nil {
				t.Error(err)
			}
			received <- m
		}()
		soon(t, "memory is registered", grows)
		echo(0)
		echo(1)
		alone := grows()
		m.SetCommandTime(0)
		(<-received).Release()
		short, err := servers[0].Recv(ctx) // of echo
		good(t, short, err).Release()
		if alone {
			return
		}
	}
	t.Error("no message is sent before the registration of memory for another has ended")
}
