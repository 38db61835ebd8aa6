package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// operations returns a call of each method of a connection that can fail. b is a buffer of it, and call a call of the
// peer that has had no reply.
func operations(ctx context.Context, c *rdma.Conn, token rdma.Token, r *rdma.Region, b rdma.Buffer,
	call rdma.Message) map[string]func() error {
	batch := func() error {
		x := c.NewBatch()
		x.Read(b, token, 0)
		return x.Do(ctx)
	}
	return map[string]func() error{
		"Send":           func() error { return c.Send(ctx, []byte("x")) },
		"Send, copied":   func() error { return c.Send(ctx, make([]byte, 1000)) },
		"Send, long":     func() error { return c.Send(ctx, make([]byte, 10000)) },
		"SendBuffer":     func() error { return c.SendBuffer(ctx, b) },
		"Call":           func() error { _, err := c.Call(ctx, []byte("x")); return err },
		"Call, long":     func() error { _, err := c.Call(ctx, make([]byte, 10000)); return err },
		"CallBuffer":     func() error { _, err := c.CallBuffer(ctx, b); return err },
		"Recv":           func() error { _, err := c.Recv(ctx); return err },
		"Reply":          func() error { return call.Reply(ctx, nil) },
		"Reply, long":    func() error { return call.Reply(ctx, make([]byte, 10000)) },
		"ReplyBuffer":    func() error { return call.ReplyBuffer(ctx, b) },
		"Read":           func() error { return c.Read(ctx, make([]byte, 10), token, 0) },
		"ReadBuffer":     func() error { return c.ReadBuffer(ctx, b, token, 0) },
		"Write":          func() error { return c.Write(ctx, make([]byte, 10), token, 0) },
		"Write, long":    func() error { return c.Write(ctx, make([]byte, 1000), token, 0) },
		"WriteBuffer":    func() error { return c.WriteBuffer(ctx, b, token, 0) },
		"WriteImm":       func() error { return c.WriteImm(ctx, make([]byte, 10), token, 0, 1) },
		"WriteImmBuffer": func() error { return c.WriteImmBuffer(ctx, b, token, 0, 1) },
		"CompareAndSwap": func() error { _, err := c.CompareAndSwap(ctx, token, 0, 1, 2); return err },
		"FetchAdd":       func() error { _, err := c.FetchAdd(ctx, token, 0, 1); return err },
		"Batch":          batch,
		"Share":          func() error { _, err := c.Share(ctx, r, rdma.CanRead); return err },
	}
}

// TestAfterClose checks that each method returns an error after Close.
func TestAfterClose(t *testing.T) {
	for _, side := range []string{"this", "peer"} {
		t.Run(side, func(t *testing.T) {
			p := connect(t, nil, nil)
			ctx := limit(t)
			_, s := p.share(t, 4096, allRights)
			r := rdma.NewRegion(64)
			b := must(p.client.Alloc(64))(t)
			called := background(func() error { _, err := p.server.Call(ctx, []byte("x")); return err })
			call := must(p.client.Recv(ctx))(t)
			want := net.ErrClosed
			if side == "this" {
				check(t, p.client.Close())
			} else {
				check(t, p.server.Close())
				_, err := p.client.Recv(ctx)
				isError(t, err, io.EOF)
				want = rdma.ErrDisconnected
			}
			<-called
			for name, f := range operations(ctx, p.client, s.Token(), r, b, call) {
				if err := f(); !errors.Is(err, want) && !(name == "Recv" && err == io.EOF) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			}
			isError(t, p.client.Err(), want)
			late, err := p.client.Alloc(100)
			if side == "this" && err == nil {
				t.Error("Alloc returns a buffer after Close")
			}
			late.Release()
			b.Release()
			call.Release()
			check(t, r.Close())
		})
	}
}

// TestCloseRaces closes a connection while goroutines use all methods. What is left is reported by package verbstest.
func TestCloseRaces(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		p := connect(t, &rdma.Options{Linger: -1}, &rdma.Options{Linger: 100 * time.Millisecond})
		p.allow(verbstest.RemoteAccess) // the last requests of the other side
		ctx := limit(t)
		region, s := p.share(t, 4096, allRights)
		var users sync.WaitGroup
		for _, c := range []*rdma.Conn{p.client, p.server} {
			for range 2 {
				users.Go(func() { receiveUntilClosed(ctx, t, c) })
				users.Go(func() { shareUntilClosed(ctx, t, c, region) })
			}
		}
		for k := range 4 {
			users.Go(func() { useUntilClosed(ctx, t, p.client, s.Token(), k) })
		}
		rounds := 5 * i
		until(t, "messages are sent", func() bool { return p.client.Stats().Operations >= uint64(rounds) })
		first, second := p.client, p.server
		if i%2 == 0 {
			first, second = second, first
		}
		closed := background(first.Close)
		mayLose(t, first.Close())
		mayLose(t, <-closed)
		mayLose(t, second.Close())
		users.Wait()
	}
}

// ended reports whether err is that of a connection that has ended.
func ended(t *testing.T, err error) bool {
	if err != nil && err != io.EOF && !errors.Is(err, net.ErrClosed) && !errors.Is(err, rdma.ErrDisconnected) {
		t.Error(err)
	}
	return err != nil
}

// receiveUntilClosed replies to calls.
func receiveUntilClosed(ctx context.Context, t *testing.T, c *rdma.Conn) {
	for {
		m, err := c.Recv(ctx)
		if ended(t, err) {
			return
		}
		if m.IsCall() {
			ended(t, m.Reply(ctx, m.Bytes()))
		}
		m.Release()
	}
}

// shareUntilClosed shares and revokes.
func shareUntilClosed(ctx context.Context, t *testing.T, c *rdma.Conn, r *rdma.Region) {
	for {
		s, err := c.Share(ctx, r, rdma.CanRead)
		if ended(t, err) {
			return
		}
		other, err := c.Share(ctx, r, rdma.CanWrite)
		if err := s.Revoke(); err != nil {
			t.Error(err)
		}
		if ended(t, err) {
			return
		}
		if err := other.Revoke(); err != nil {
			t.Error(err)
		}
	}
}

// useUntilClosed does everything else.
func useUntilClosed(ctx context.Context, t *testing.T, c *rdma.Conn, token rdma.Token, k int) {
	for i := k; ; i++ {
		n := []int{10, 1000, 10000}[i%3]
		err := func() error {
			switch i % 8 {
			case 0:
				return c.Send(ctx, make([]byte, n))
			case 1:
				return c.Read(ctx, make([]byte, n%4096), token, 0)
			case 2:
				return c.Write(ctx, make([]byte, n%4096), token, 0)
			case 3:
				_, err := c.FetchAdd(ctx, token, 0, 1)
				return err
			case 4:
				return c.WriteImm(ctx, make([]byte, 10), token, 0, 1)
			case 5:
				m, err := c.Call(ctx, make([]byte, n))
				m.Release()
				return err
			}
			b, err := c.Alloc(n)
			if err != nil {
				return err
			}
			if i%8 == 6 {
				m, err := c.CallInto(ctx, make([]byte, n), b)
				m.Release()
				return err
			}
			if err := c.SendBuffer(ctx, b); err != nil {
				b.Release()
				return err
			}
			return nil
		}()
		if ended(t, err) {
			return
		}
	}
}

// TestErrAfterClose checks that Err says that the peer has closed the connection, whatever the connection has noticed
// since.
func TestErrAfterClose(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	const messages = 5
	for range messages {
		check(t, p.client.Send(ctx, []byte("x")))
	}
	check(t, p.client.Close())
	for range messages {
		m := must(p.server.Recv(ctx))(t)
		m.Release()
		p.server.Stats()
	}
	for range 3 {
		_, err := p.server.Recv(ctx)
		if err != io.EOF {
			t.Errorf("Recv returns %v", err)
		}
		isError(t, p.server.Err(), io.EOF)
		isError(t, p.server.Err(), rdma.ErrDisconnected)
		isError(t, p.server.Send(ctx, nil), io.EOF)
	}
}

// TestShutdownOfMany checks that each call of Shutdown returns within its context, and Close within Options.Linger,
// also while another waits.
func TestShutdownOfMany(t *testing.T) {
	for name, second := range map[string]func(c *rdma.Conn) error{
		"Close": func(c *rdma.Conn) error {
			if err := c.Close(); !errors.Is(err, rdma.ErrUndelivered) {
				return fmt.Errorf("%v, want that a message was not delivered", err)
			}
			return nil
		},
		"Shutdown": func(c *rdma.Conn) error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			if err := c.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("%v, want a deadline that was exceeded", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, &rdma.Options{Linger: 10 * time.Millisecond}, nil)
			check(t, p.client.Send(limit(t), make([]byte, 10000))) // nobody receives it
			first := background(func() error { return p.client.Shutdown(context.Background()) })
			until(t, "it is being closed", func() bool { return isClosing(p.client) })
			check(t, within(t, background(func() error { return second(p.client) }), name))
			isError(t, within(t, first, "the first Shutdown"), context.DeadlineExceeded)
			check(t, p.client.Shutdown(t.Context()))
		})
	}
}

// TestShutdownLost checks that Shutdown says if the connection has ended before the peer had everything.
func TestShutdownLost(t *testing.T) {
	t.Parallel()
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 12})
	p.dial(t, nil, &rdma.Options{Linger: -1})
	p.there.Kill()
	check(t, p.client.Send(limit(t), []byte("lost")))
	err := p.client.Shutdown(limit(t))
	isError(t, err, rdma.ErrDisconnected)
	isError(t, err, uverbs.WCRetryExcErr)
}
