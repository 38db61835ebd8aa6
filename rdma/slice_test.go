package rdma_test

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestSlices sends and accesses slices of buffers and messages of all kinds of lengths, and slices of slices.
func TestSlices(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	r, s := p.share(t, 1<<17, allRights)
	for _, n := range []int{0, 8, 128, 200, 4096, 5000, 100000} {
		b := must(p.client.Alloc(n + 100))(t)
		want := pattern(n+100, n)
		copy(b.Bytes(), want)
		part := must(b.Slice(50, n+50))(t)
		b.Release()
		last := must(part.Slice(0, n))(t)
		if part.Len() != n+50 || last.Cap() != n || !bytes.Equal(last.Bytes(), want[50:50+n]) {
			t.Errorf("%d bytes: Len %d, Cap %d, or other bytes", n, part.Len(), last.Cap())
		}
		check(t, p.client.WriteBuffer(ctx, part, s.Token(), 0))
		if !bytes.Equal(r.Bytes()[:n+50], want[50:]) {
			t.Errorf("%d bytes: others were written", n)
		}
		part.Release()
		check(t, p.client.SendBuffer(ctx, last))
		m := must(p.server.Recv(ctx))(t)
		half := must(m.Slice(n/2, n-n/2))(t)
		m.Release()
		check(t, p.server.SendBuffer(ctx, half)) // back
		back := must(p.client.Recv(ctx))(t)
		if !bytes.Equal(back.Bytes(), want[50+n/2:50+n]) {
			t.Errorf("%d bytes: others came back", n)
		}
		back.Release()
	}
	roundTrip(t, p)
}

// TestSliceMisuse checks slices out of range, and those that are used after they were sent or released.
func TestSliceMisuse(t *testing.T) {
	p := connect(t, nil, nil)
	p.allow(verbstest.BufferUse)
	ctx := limit(t)
	b := must(p.client.Alloc(100))(t)
	for _, at := range [][2]int{{-1, 1}, {0, -1}, {0, 101}, {101, 0}, {100, 1}, {1 << 62, 1 << 62}} {
		_, err := b.Slice(at[0], at[1])
		isError(t, err, rdma.ErrBounds)
	}
	part := must(b.Slice(0, 50))(t)
	check(t, part.SetLen(10))
	isError(t, part.SetLen(51), rdma.ErrBounds)
	part.Release()
	part.Release()
	other := must(b.Slice(0, 100))(t) // it may have the memory of part
	for range 3 {
		part.Release()
		_, err := part.Slice(0, 0)
		isError(t, err, rdma.ErrReleased)
		isError(t, part.SetLen(0), rdma.ErrReleased)
		isError(t, p.client.SendBuffer(ctx, part), rdma.ErrReleased)
		if part.Bytes() != nil || part.Len() != 0 || part.Cap() != 0 || other.Len() != 100 {
			t.Error("a slice that was released has bytes, or has released another")
		}
	}
	check(t, p.client.SendBuffer(ctx, b))
	_, err := b.Slice(0, 1)
	isError(t, err, rdma.ErrReleased)
	check(t, p.client.SendBuffer(ctx, other))
	for range 2 {
		m := must(p.server.Recv(ctx))(t)
		m.Release()
	}
	var none rdma.Buffer
	_, err = none.Slice(0, 0)
	isError(t, err, rdma.ErrReleased)
}

// TestSlicesBesideRelease uses slices while they are released and their memory is used for others.
func TestSlicesBesideRelease(t *testing.T) {
	p := connect(t, nil, nil)
	p.allow(verbstest.BufferUse)
	b := must(p.client.Alloc(1000))(t)
	defer b.Release()
	for range 5000 {
		old, used := must(b.Slice(0, 1000))(t), make(chan struct{})
		var user sync.WaitGroup
		user.Go(func() {
			close(used)
			for old.SetLen(1000) == nil {
				for _, n := range []int{len(old.Bytes()), old.Len(), old.Cap()} {
					if n != 1000 && n != 0 {
						t.Errorf("a slice of 1000 bytes has %d", n)
					}
				}
			}
		})
		<-used
		old.Release()
		next := must(b.Slice(0, 16))(t)
		user.Wait()
		if len(next.Bytes()) != 16 || next.Len() != 16 || next.Cap() != 16 {
			t.Errorf("a slice of 16 bytes has %d, Len %d, Cap %d", len(next.Bytes()), next.Len(), next.Cap())
		}
		next.Release()
	}
}

// TestFanOut sends one buffer on many connections at the same time. One of them ends before its peer has the message,
// and the context of another call ends. The memory is used again when all slices are released.
func TestFanOut(t *testing.T) {
	p := machines(t)
	const conns, size = 6, 300000
	all := make([]*pair, conns)
	for i := range all {
		all[i] = &pair{net: p.net, here: p.here, there: p.there}
		all[i].dial(t, &rdma.Options{Linger: -1}, &rdma.Options{Depth: 1})
	}
	ctx := limit(t)
	b := must(all[0].client.Alloc(size))(t)
	copy(b.Bytes(), pattern(size, 1))
	first := &b.Bytes()[0]
	for _, p := range all {
		check(t, p.client.SendBuffer(ctx, must(b.Slice(0, size))(t)))
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	part := must(b.Slice(0, size))(t)
	isError(t, all[1].client.SendBuffer(canceled, part), context.Canceled) // and it has no credit
	part.Release()
	b.Release()
	mayLose(t, all[0].client.Close())
	if _, err := all[0].server.Recv(ctx); err == nil || err == io.EOF {
		t.Errorf("the message of a connection that has ended: %v", err)
	}
	var users sync.WaitGroup
	for _, p := range all[1:] {
		users.Go(func() {
			m, err := p.server.Recv(ctx)
			if err != nil || !bytes.Equal(m.Bytes(), pattern(size, 1)) {
				t.Errorf("%d other bytes, %v", m.Len(), err)
			}
			m.Release()
		})
	}
	users.Wait()
	for _, p := range all[1:] {
		roundTrip(t, p) // the client learns that the peer has the message
	}
	for range 20 {
		next := must(all[1].client.Alloc(size))(t)
		defer next.Release()
		if &next.Bytes()[0] == first {
			return
		}
	}
	t.Error("the memory is not used again")
}
