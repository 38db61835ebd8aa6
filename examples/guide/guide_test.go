package guide

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/certtest"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

func TestService(t *testing.T) {
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	served := make(chan error, 1)
	server.Run(func() {
		l, err := rdma.Listen(":7471", nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- Serve(ctx, l) }()
	})
	client.Run(func() {
		reply, err := Ask(ctx, server.AddrPort(7471).String(), "hello")
		if reply != "HELLO" || err != nil {
			t.Errorf("%q, %v", reply, err)
		}
	})
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestUsers(t *testing.T) {
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	served := make(chan error, 1)
	server.Run(func() {
		l, err := rdma.Listen(":7471", nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- ServeUsers(ctx, l, map[string]string{"7": "eve"}) }()
	})
	client.Run(func() {
		c, err := rdma.Dial(ctx, server.AddrPort(7471).String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"7": "eve", "8": ""} {
			if user, found, err := FindUser(ctx, c, "blue", name); user != want || found != (want != "") || err != nil {
				t.Errorf("%q, %v, %v", user, found, err)
			}
		}
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// connected returns both sides of a connection.
func connected(t *testing.T, ctx context.Context) (client, server *rdma.Conn) {
	t.Helper()
	net := verbstest.NewNetwork(t)
	there, here := net.Machine(), net.Machine()
	var l *rdma.Listener
	var err error
	accepted := make(chan *rdma.Conn, 1)
	there.Run(func() {
		if l, err = rdma.Listen(":7471", nil); err != nil {
			t.Fatal(err)
		}
		go func() {
			c, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
	})
	here.Run(func() {
		if client, err = rdma.Dial(ctx, there.AddrPort(7471).String(), nil); err != nil {
			t.Fatal(err)
		}
	})
	if server = <-accepted; server == nil {
		t.FailNow()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestStream(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, server := connected(t, ctx)
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	sent := make(chan error, 1)
	go func() { sent <- errors.Join(SendAll(ctx, client, bytes.NewReader(data)), client.Close()) }()
	var got bytes.Buffer
	if err := errors.Join(ReceiveAll(ctx, server, &got), <-sent, server.Close()); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d other bytes have come", got.Len())
	}
}

func TestPublish(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var subscribers, received []*rdma.Conn
	for range 3 {
		c, s := connected(t, ctx)
		subscribers, received = append(subscribers, s), append(received, c)
	}
	data := rdma.RegionOf(bytes.Repeat([]byte("0123456789abcdef"), 10_000))
	defer func() {
		if err := data.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, n := range []int{100, 100_000} {
		var all sync.WaitGroup
		for _, c := range received {
			all.Go(func() {
				m, err := c.Recv(ctx)
				if err != nil || !bytes.Equal(m.Bytes(), data.Bytes()[32:32+n]) {
					t.Errorf("%d other bytes, %v", m.Len(), err)
				}
				m.Release()
			})
		}
		if err := Publish(ctx, data, 32, n, subscribers); err != nil {
			t.Error(err)
		}
		all.Wait()
	}
	for i, c := range received {
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		if err := errors.Join(subscribers[i].Close(), <-closed); err != nil {
			t.Error(err)
		}
	}
}

func TestFetch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, s := connected(t, ctx)
	served := make(chan error, 1)
	go func() {
		served <- s.ServeCalls(ctx, func(name []byte) []byte { return bytes.Repeat(name, 10_000) })
	}()
	into := rdma.NewRegion(100_000)
	n, err := Fetch(ctx, c, "block 7", into, 8, 90_000)
	if err != nil || !bytes.Equal(into.Bytes()[8:8+n], bytes.Repeat([]byte("block 7"), 10_000)) {
		t.Errorf("%d other bytes, %v", n, err)
	}
	if _, err := Fetch(ctx, c, "block 10", into, 0, 8); !errors.Is(err, rdma.ErrTooLong) {
		t.Errorf("a block that does not fit: %v", err)
	}
	if err := errors.Join(into.Close(), c.Close(), <-served, s.Close()); err != nil {
		t.Error(err)
	}
}

func TestTable(t *testing.T) {
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	table := rdma.NewRegion(10 * 64)
	copy(table.Bytes()[7*64:], "seven")
	served := make(chan error, 1)
	server.Run(func() {
		l, err := rdma.Listen(":7471", nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- ShareTable(ctx, l, table) }()
	})
	client.Run(func() {
		cl := NewReader(server.AddrPort(7471).String())
		entry, err := ReadEntry(ctx, cl, 7)
		if err = errors.Join(err, cl.Close()); err != nil || string(entry[:5]) != "seven" {
			t.Errorf("%q, %v", entry[:5], err)
		}
	})
	stop()
	if err := errors.Join(<-served, table.Close()); err != nil {
		t.Error(err)
	}
}

// TestRails reads a table over two devices, one of which is removed.
func TestRails(t *testing.T) {
	net := verbstest.NewNetwork(t)
	net.SetTimeouts(verbstest.Timeouts{Ack: 12}) // 17 ms in place of 1 s
	server, client := net.Machine(), net.Machine()
	second := server.AddDevice()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	table := rdma.RegionOf(bytes.Repeat([]byte("0123456789abcdef"), 1<<18))
	served := make(chan error, 1)
	server.Run(func() {
		l, err := rdma.Listen(":7471", &rdma.ListenOptions{Options: rdma.Options{Linger: -1}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- ShareTable(ctx, l, table) }()
	})
	client.Run(func() {
		cl := NewRailsReader(server.AddrPort(7471).String(), second.AddrPort(7471).String())
		for range 2 {
			read := make([]byte, len(table.Bytes()))
			if err := ReadTable(ctx, cl, read); err != nil || !bytes.Equal(read, table.Bytes()) {
				t.Errorf("another table, %v", err)
			}
			second.RemoveDevice()
		}
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
	stop()
	if err := errors.Join(<-served, table.Close()); err != nil {
		t.Error(err)
	}
}

// TestTrusted checks that peers with certificates of one authority are connected, and others are not.
func TestTrusted(t *testing.T) {
	authority, err := certtest.New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	net := verbstest.NewNetwork(t)
	there, here := net.Machine(), net.Machine()
	addr := there.AddrPort(7471)
	issue := func(name string) rdma.Options {
		c, err := authority.Issue(name, addr.Addr().AsSlice())
		if err != nil {
			t.Fatal(err)
		}
		return Trusted(c, authority.Pool)
	}
	served := make(chan error, 1)
	there.Run(func() {
		l, err := rdma.Listen(":7471", &rdma.ListenOptions{Options: issue("server")})
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- Serve(ctx, l) }()
	})
	here.Run(func() {
		o := issue("client")
		c, err := rdma.Dial(ctx, addr.String(), &o)
		if err != nil {
			t.Fatal(err)
		}
		if name := c.TLS().PeerCertificates[0].Subject.CommonName; name != "server" {
			t.Errorf("the server is %q", name)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := Ask(ctx, addr.String(), "hello"); !errors.Is(err, rdma.ErrUnauthenticated) {
			t.Errorf("without a certificate: %v", err)
		}
	})
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
