package rdma_test

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestBuffers checks who owns a buffer, and that a buffer that is used too late does nothing.
func TestBuffers(t *testing.T) {
	p := connect(t, nil, nil)
	p.allow(verbstest.BufferUse)
	ctx := limit(t)
	for _, n := range []int{0, 1, 4000, 100000} {
		b := must(p.client.Alloc(n))(t)
		if b.Len() != n || len(b.Bytes()) != n || b.Cap() < n {
			t.Errorf("%d bytes: Len %d, %d bytes, Cap %d", n, b.Len(), len(b.Bytes()), b.Cap())
		}
		isError(t, b.SetLen(b.Cap()+1), rdma.ErrBounds)
		isError(t, b.SetLen(-1), rdma.ErrBounds)
		copy(b.Bytes(), pattern(n, 1))
		check(t, p.client.SendBuffer(ctx, b))
		stale(t, p, b)
		m := must(p.server.Recv(ctx))(t)
		if !bytes.Equal(m.Bytes(), pattern(n, 1)) {
			t.Errorf("%d bytes: other data", n)
		}
		m.Release()
		m.Release()
		if m.Bytes() != nil {
			t.Error("a message has bytes after Release")
		}
	}
	b := must(p.server.Alloc(10))(t)
	if !onKernel {
		isError(t, p.client.SendBuffer(ctx, b), rdma.ErrForeign)
	}
	b.Release()
	b.Release()
	var none rdma.Buffer
	none.Release()
	isError(t, p.client.SendBuffer(ctx, none), rdma.ErrReleased)
}

// stale checks a buffer that was sent, also when another buffer has its memory.
func stale(t *testing.T, p *pair, b rdma.Buffer) {
	t.Helper()
	for range 50 {
		other := must(p.client.Alloc(b.Cap()))(t)
		n := other.Len()
		if b.Bytes() != nil || b.Len() != 0 || b.Cap() != 0 {
			t.Error("a buffer that was sent has bytes")
		}
		isError(t, b.SetLen(0), rdma.ErrReleased)
		isError(t, p.client.SendBuffer(limit(t), b), rdma.ErrReleased)
		b.Release()
		if len(other.Bytes()) != n {
			t.Error("the release of a stale buffer has released another")
		}
		other.Release()
	}
}

// TestTooLong checks the limit of the peer.
func TestTooLong(t *testing.T) {
	p := connect(t, nil, &rdma.Options{MaxMessage: 10000})
	ctx := limit(t)
	isError(t, p.client.Send(ctx, make([]byte, 10001)), rdma.ErrTooLong)
	check(t, p.client.Send(ctx, make([]byte, 10000)))
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	none := connect(t, nil, &rdma.Options{Offers: -1})
	isError(t, none.client.Send(ctx, make([]byte, 5000)), rdma.ErrTooLong)
	check(t, none.client.Send(ctx, make([]byte, 4096)))
}
