package rdma_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestLeadersLeave checks that messages, replies and completions find those that wait for them, although the contexts
// of other calls end at any moment, also that of the call that polls. Each message is sent when the one before has
// arrived, so nothing else would wake a call that is forgotten.
func TestLeadersLeave(t *testing.T) {
	t.Parallel()
	p := &pair{net: verbstest.NewNetwork(t, verbstest.Seed(0))}
	p.here, p.there = p.net.Machine(), p.net.Machine()
	p.dial(t, &rdma.Options{KeepAlive: -1, Offers: 1}, &rdma.Options{KeepAlive: -1, Offers: 1})
	ctx := limit(t)
	_, s := p.share(t, 4096, allRights)
	var users sync.WaitGroup
	stop := make(chan struct{})
	arrived := make(chan uint64)
	for k := range 6 {
		users.Go(func() { leaveOften(ctx, t, p.client, k, arrived) })
	}
	users.Go(func() { echo(ctx, t, p.server) })
	for k := range 2 {
		users.Go(func() { operate(ctx, t, p.client, s.Token(), k, stop) })
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(800) {
		check(t, p.server.Send(ctx, numbered(int(i), 8+[]int{0, 300, 5000}[r.IntN(3)])))
		select {
		case got := <-arrived:
			if got != i {
				t.Errorf("message %d arrives, not %d", got, i)
			}
		case <-time.After(patience):
			t.Fatalf("message %d does not arrive", i)
		}
	}
	close(stop)
	check(t, p.client.Close())
	users.Wait()
}

// TestLeaderHandsOver checks that a call that waits goes on when the context of the only other call, which polls, ends
// while a message arrives.
func TestLeaderHandsOver(t *testing.T) {
	t.Parallel()
	p := connect(t, &rdma.Options{KeepAlive: -1}, &rdma.Options{KeepAlive: -1})
	ctx := limit(t)
	arrived := make(chan error, 2)
	patient := background(func() error {
		for {
			m, err := p.client.Recv(ctx)
			if err != nil {
				return err
			}
			m.Release()
			arrived <- nil
		}
	})
	for i := range 3000 {
		short, cancel := context.WithCancel(ctx)
		left := background(func() error {
			m, err := p.client.Recv(short)
			if err == nil {
				m.Release()
				arrived <- nil
			}
			return err
		})
		for range i % 50 {
			runtime.Gosched()
		}
		sent := background(func() error { return p.server.Send(ctx, nil) })
		cancel()
		check(t, within(t, arrived, "Recv"))
		if err := within(t, left, "the other Recv"); err != nil {
			isError(t, err, context.Canceled)
		}
		check(t, <-sent)
	}
	check(t, p.client.Close())
	isError(t, within(t, patient, "Recv"), net.ErrClosed)
}

// leaveOften receives messages with contexts that end early.
func leaveOften(ctx context.Context, t *testing.T, c *rdma.Conn, k int, arrived chan<- uint64) {
	r := rand.New(rand.NewPCG(3, uint64(k)))
	for {
		short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(500))*time.Microsecond)
		if k == 0 { // one stays
			short = ctx
		}
		m, err := c.Recv(short)
		cancel()
		switch {
		case err == nil:
			i := binary.LittleEndian.Uint64(m.Bytes())
			m.Release()
			arrived <- i
		case errors.Is(err, net.ErrClosed):
			return
		case !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil:
			t.Error(err)
			return
		}
	}
}

// operate calls, reads and adds, one after the other, partly with contexts that end early.
func operate(ctx context.Context, t *testing.T, c *rdma.Conn, token rdma.Token, k int, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(4, uint64(k)))
	b := make([]byte, 100)
	for {
		select {
		case <-stop:
			return
		default:
		}
		one, cancel := ctx, context.CancelFunc(func() {})
		if r.IntN(2) == 0 {
			one, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(200))*time.Microsecond)
		}
		var err error
		switch r.IntN(3) {
		case 0:
			var m rdma.Message
			m, err = c.Call(one, make([]byte, []int{10, 6000}[r.IntN(2)]))
			m.Release()
		case 1:
			err = c.Read(one, b, token, 0)
		case 2:
			_, err = c.FetchAdd(one, token, 0, 1)
		}
		cancel()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil) {
			t.Error(err)
			return
		}
	}
}

// TestCloseEndsSends checks that calls that wait for credits return when this side closes the connection, and that the
// peer gets what was sent before.
func TestCloseEndsSends(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Depth: 2})
	ctx := limit(t)
	_, s := p.share(t, 64, allRights)
	for i := range 2 {
		check(t, p.client.Send(ctx, numbered(i, 100)))
	}
	var waits []<-chan error
	for range 3 {
		waits = append(waits,
			background(func() error { return p.client.Send(ctx, make([]byte, 10)) }),
			background(func() error { return p.client.Send(ctx, make([]byte, 1000)) }),
			background(func() error { return p.client.Send(ctx, make([]byte, 10000)) }),
			background(func() error { return p.client.WriteImm(ctx, make([]byte, 10), s.Token(), 0, 1) }),
			background(func() error { _, err := p.client.Call(ctx, nil); return err }))
	}
	closed := background(p.client.Close)
	for _, w := range waits {
		isError(t, within(t, w, "a call that waits for a credit"), net.ErrClosed)
	}
	for i := range 2 {
		m := must(p.server.Recv(ctx))(t)
		if binary.LittleEndian.Uint64(m.Bytes()) != uint64(i) {
			t.Error("another message")
		}
		m.Release()
	}
	_, err := p.server.Recv(ctx)
	if err != io.EOF {
		t.Errorf("%v, want io.EOF", err)
	}
	check(t, within(t, closed, "Close"))
}

// TestSteadyState checks that no memory is registered once there is enough.
func TestSteadyState(t *testing.T) {
	t.Parallel()
	p := connect(t, nil, nil)
	ctx := limit(t)
	_, s := p.share(t, 1<<20, allRights)
	echoes := background(func() error { echo(ctx, t, p.server); return nil })
	round := func() {
		for _, n := range []int{10, 200, 4000, 5000, 300000, 2 << 20} {
			for range 3 {
				check(t, p.client.Send(ctx, make([]byte, n)))
				m := must(p.client.Recv(ctx))(t)
				m.Release()
			}
			m := must(p.client.Call(ctx, make([]byte, n)))(t)
			m.Release()
			n = min(n, 1<<20)
			check(t, p.client.Write(ctx, make([]byte, n), s.Token(), 0))
			check(t, p.client.Read(ctx, make([]byte, n), s.Token(), 0))
		}
		must(p.client.FetchAdd(ctx, s.Token(), 0, 1))(t)
	}
	commands := func() int { return p.here.Commands() + p.there.Commands() }
	round()
	for try := 0; ; try++ { // how many messages are on their way at a time depends on the moment
		before := commands()
		round()
		round()
		if commands() == before {
			break
		}
		if try == 10 {
			t.Fatal("memory is still registered")
		}
	}
	check(t, p.client.Close())
	<-echoes
}

// TestEndOfMany checks that many receivers get all messages once, and then each io.EOF, when the peer closes the
// connection while they wait.
func TestEndOfMany(t *testing.T) {
	t.Parallel()
	for round := range 60 {
		p := &pair{net: verbstest.NewNetwork(t, verbstest.Seed(0))}
		p.here, p.there = p.net.Machine(), p.net.Machine()
		p.dial(t, nil, &rdma.Options{Offers: 1 + round%3, Depth: 1 + round%5})
		ctx := limit(t)
		var ends []<-chan error
		var received atomic.Int32
		for range 5 {
			ends = append(ends, background(func() error {
				for {
					m, err := p.server.Recv(ctx)
					if err != nil {
						return err
					}
					received.Add(1)
					m.Release()
				}
			}))
		}
		messages := round % 12
		for i := range messages {
			check(t, p.client.Send(ctx, make([]byte, []int{10, 5000, 300, 100000}[(i+round)%4])))
		}
		check(t, p.client.Close())
		for _, end := range ends {
			if err := within(t, end, "Recv"); err != io.EOF {
				t.Errorf("%v, want io.EOF", err)
			}
		}
		if n := received.Load(); int(n) != messages {
			t.Errorf("%d messages arrived, want %d", n, messages)
		}
	}
}
