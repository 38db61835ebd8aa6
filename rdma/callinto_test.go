package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestCallInto checks replies of all lengths in memory of the program and in buffers of the connection, and what is
// beside them in the memory.
func TestCallInto(t *testing.T) {
	p, served := handled(t, nil, func(_ context.Context, r *rdma.Request) ([]byte, error) {
		if !r.IsCall() {
			return nil, nil
		}
		return r.Bytes(), r.SetReplyMetadata("key", "value")
	}, nil)
	ctx := limit(t)
	const size = 1 << 19
	region := rdma.NewRegion(size)
	for i, n := range []int{0, 1, 128, 4000, 4096, 4097, 300000} {
		want := pattern(n, i)
		off := 1000*i + 1
		before := bytes.Clone(region.Bytes())
		m := must(p.client.CallInto(ctx, want, must(p.client.BufferOf(region, off, n+100))(t)))(t)
		if !bytes.Equal(m.Bytes(), want) || m.Len() != n || n > 0 && &m.Bytes()[0] != &region.Bytes()[off] {
			t.Errorf("%d bytes: the reply has %d, or others, or is elsewhere", n, m.Len())
		}
		if m.Metadata()["key"] != "value" {
			t.Errorf("%d bytes: the metadata is %v", n, m.Metadata())
		}
		m.Release()
		copy(before[off:], want)
		if !bytes.Equal(region.Bytes(), before) {
			t.Errorf("%d bytes: bytes beside the reply have changed", n)
		}
		b := must(p.client.Alloc(n))(t)
		memory := b.Bytes()
		m = must(p.client.CallInto(ctx, want, b))(t)
		if b.Cap() != 0 || !bytes.Equal(m.Bytes(), want) || n > 0 && &m.Bytes()[0] != &memory[0] {
			t.Errorf("%d bytes: another reply in a buffer of the connection", n)
		}
		check(t, p.client.SendBuffer(ctx, m.Buffer)) // as any other buffer
	}
	check(t, region.Close())
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestCallIntoErrors checks the errors of calls, after which nothing uses the memory and the connection goes on.
func TestCallIntoErrors(t *testing.T) {
	p, served := handled(t, nil, func(_ context.Context, r *rdma.Request) ([]byte, error) {
		if r.Len() == 0 {
			return nil, &rdma.CallError{Code: 105, Text: "a text longer than the buffer"}
		}
		return make([]byte, r.Len()), nil
	}, nil)
	ctx := limit(t)
	region := rdma.NewRegion(1 << 16)
	part := func(n int) rdma.Buffer { return must(p.client.BufferOf(region, 0, n))(t) }
	copy(region.Bytes(), bytes.Repeat([]byte("x"), 1<<16))
	for _, n := range []int{1, 100, 4096, 4097, 1 << 16} {
		_, err := p.client.CallInto(ctx, make([]byte, n), part(n-1))
		isError(t, err, rdma.ErrTooLong)
		_, err = p.client.CallInto(ctx, nil, part(10))
		isCallError(t, err, 105, "a text longer than the buffer")
	}
	released := part(1)
	released.Release()
	p.allow(verbstest.BufferUse)
	_, err := p.client.CallInto(ctx, nil, released)
	isError(t, err, rdma.ErrReleased)
	if !onKernel { // where both are of one device
		b := must(connect(t, nil, nil).client.Alloc(10))(t)
		_, err = p.client.CallInto(ctx, nil, b)
		isError(t, err, rdma.ErrForeign)
	}
	_, err = p.client.CallInto(rdma.WithMetadata(ctx, "", ""), nil, part(10))
	isError(t, err, uverbs.ErrInvalid)
	if got := bytes.Trim(region.Bytes(), "x"); len(got) > 0 {
		t.Errorf("%q is in the region", got)
	}
	check(t, region.Close())
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestCallIntoCanceled checks that replies to calls that were canceled do not reach the memory, which the program has
// back at once.
func TestCallIntoCanceled(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	region := rdma.NewRegion(1 << 16)
	for _, n := range []int{100, 1 << 16} {
		canceled, cancel := context.WithCancel(ctx)
		called := background(func() error {
			_, err := p.client.CallInto(canceled, []byte("call"), must(p.client.BufferOf(region, 0, 1<<16))(t))
			return err
		})
		m := must(p.server.Recv(ctx))(t)
		cancel()
		isError(t, within(t, called, "CallInto"), context.Canceled)
		check(t, m.Reply(ctx, bytes.Repeat([]byte("y"), n)))
		m.Release()
		echoed := background(func() error {
			m, err := p.client.Call(ctx, []byte("another"))
			m.Release()
			return err
		})
		next := must(p.server.Recv(ctx))(t)
		next.Release()
		check(t, next.Reply(ctx, nil))
		check(t, within(t, echoed, "Call"))
	}
	if bytes.Contains(region.Bytes(), []byte("y")) {
		t.Error("a reply is in the region")
	}
	check(t, region.Close())
}

// TestCallIntoRegionFunc checks replies into memory that the process cannot access.
func TestCallIntoRegionFunc(t *testing.T) {
	memory := make([]byte, 1<<16)
	p, served := handled(t, nil, echoes, nil)
	ctx := limit(t)
	region := rdma.RegionFunc(len(memory), func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		return pd.RegMR(memory, a)
	})
	for _, n := range []int{100, 4096, 4097, 1 << 16} {
		clear(memory)
		want := pattern(n, n)
		m, err := p.client.CallInto(ctx, want, must(p.client.BufferOf(region, 0, 1<<16))(t))
		if p.client.Sealed() {
			isError(t, err, uverbs.ErrInvalid)
			continue
		}
		check(t, err)
		if n > 4096 && (m.Bytes() != nil || !bytes.Equal(memory[:n], want)) {
			t.Errorf("%d bytes: others are in the region", n)
		}
		if n <= 4096 && (!bytes.Equal(m.Bytes(), want) || !bytes.Equal(memory, make([]byte, 1<<16))) {
			t.Errorf("%d bytes: another reply, or the region has changed", n)
		}
		m.Release()
	}
	check(t, region.Close())
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestCallIntoBudget checks that a listener does not count replies in memory of its program.
func TestCallIntoBudget(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	var l *rdma.Listener
	p.onServer(func() {
		l = must(rdma.Listen(p.listenAddr(), &rdma.ListenOptions{MaxMemory: 1 << 20, MaxMemoryPerPeer: 1 << 20}))(t)
	})
	const n = 512 << 10 // more than one do not fit into the limit
	served := background(func() error {
		c, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		for range 4 {
			b, err := c.Alloc(n)
			if err != nil {
				return err
			}
			m, err := c.CallInto(ctx, nil, b)
			if err != nil {
				return err
			}
			defer m.Release()
		}
		return c.Close()
	})
	var c *rdma.Conn
	p.onClient(func() { c = must(rdma.Dial(ctx, p.addr(l), nil))(t) })
	check(t, c.ServeCalls(ctx, func([]byte) []byte { return make([]byte, n) }))
	check(t, within(t, served, "the server"))
	check(t, c.Close())
	check(t, l.Close())
}

// TestCallIntoRace ends the contexts of calls at all moments, while others use the same memory: each reply is that to
// its call.
func TestCallIntoRace(t *testing.T) {
	p, served := handled(t, nil, echoes, nil)
	ctx := limit(t)
	var all sync.WaitGroup
	var replies atomic.Int32
	for k := range 4 {
		all.Go(func() {
			for i := range 200 {
				want := numbered(k*1000+i, []int{5000, 8000, 100}[i%3])
				b := must(p.client.Alloc(8192))(t)
				short, cancel := context.WithTimeout(ctx, time.Duration(i*i*k)*50*time.Nanosecond)
				if k == 0 {
					short = ctx
				}
				m, err := p.client.CallInto(short, want, b)
				cancel()
				if err == nil {
					replies.Add(1)
					if !bytes.Equal(m.Bytes(), want) {
						t.Errorf("call %d of %d has another reply", i, k)
					}
					m.Release()
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := replies.Load(); n < 200 || n == 800 {
		t.Errorf("%d of 800 calls have a reply", n)
	}
	check(t, p.client.Flush(ctx))
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}
