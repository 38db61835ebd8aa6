package rdma_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the error is %v, want %v", err, want)
	}
}

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A pair is a connection on two machines in memory.
type pair struct {
	net            *verbstest.Network
	here, there    *verbstest.Machine
	client, server *rdma.Conn
}

// connect returns a connection whose sides have the given options.
func connect(t testing.TB, client, server *rdma.Options, options ...verbstest.Option) *pair {
	t.Helper()
	p := &pair{net: verbstest.NewNetwork(t, options...)}
	p.here, p.there = p.net.Machine(), p.net.Machine()
	p.dial(t, client, server)
	return p
}

func (p *pair) dial(t testing.TB, client, server *rdma.Options) {
	t.Helper()
	ctx := limit(t)
	accepted := make(chan *rdma.Conn, 1)
	var l *rdma.Listener
	p.there.Run(func() {
		l = must(rdma.Listen(":7471", server))(t)
		go func() {
			c, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
	})
	p.here.Run(func() { p.client = must(rdma.Dial(ctx, p.there.AddrPort(7471).String(), client))(t) })
	p.server = <-accepted
	check(t, l.Close())
	if p.server == nil {
		t.FailNow()
	}
	t.Cleanup(func() {
		closed := make(chan error, 1)
		go func() { closed <- p.server.Close() }()
		check(t, p.client.Close())
		check(t, <-closed)
	})
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }
