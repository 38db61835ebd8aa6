package rdma_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestReleaseBesideUse releases buffers while operations begin with them. Whichever comes first, no memory must have
// two owners afterwards.
func TestReleaseBesideUse(t *testing.T) {
	p := connect(t, nil, nil)
	p.allow(verbstest.BufferUse)
	ctx := limit(t)
	_, s := p.share(t, 4096, allRights)
	go func() {
		for {
			m, err := p.server.Recv(ctx)
			if err != nil {
				return
			}
			m.Release()
		}
	}()
	uses := []func(b rdma.Buffer) error{
		func(b rdma.Buffer) error { return p.client.SendBuffer(ctx, b) },
		func(b rdma.Buffer) error { return p.client.WriteBuffer(ctx, b, s.Token(), 0) },
		func(b rdma.Buffer) error { return p.client.ReadBuffer(ctx, b, s.Token(), 0) },
		func(b rdma.Buffer) error { return p.client.WriteImmBuffer(ctx, b, s.Token(), 0, 1) },
	}
	for i := range 4000 {
		b := must(p.client.Alloc(300))(t)
		var both sync.WaitGroup
		both.Go(func() {
			if err := uses[i%4](b); err != nil && !errors.Is(err, rdma.ErrReleased) {
				t.Error(err)
			}
		})
		both.Go(b.Release)
		both.Wait()
		b.Release()
	}
	owners(t, p.client, 300)
}

// owners checks that buffers do not share memory.
func owners(t *testing.T, c *rdma.Conn, n int) {
	t.Helper()
	at := map[*byte]bool{}
	var all []rdma.Buffer
	for range 2000 {
		b := must(c.Alloc(n))(t)
		if first := &b.Bytes()[0]; at[first] {
			t.Fatal("two buffers have the same memory")
		} else {
			at[first] = true
		}
		all = append(all, b)
	}
	for _, b := range all {
		b.Release()
	}
}

// TestBatchOfReleased checks that a batch does not use a buffer that was released after it was added.
func TestBatchOfReleased(t *testing.T) {
	p := connect(t, nil, nil)
	p.allow(verbstest.BufferUse)
	ctx := limit(t)
	r, s := p.share(t, 4096, allRights)
	batch := p.client.NewBatch()
	good, bad := must(p.client.Alloc(100))(t), must(p.client.Alloc(100))(t)
	copy(good.Bytes(), pattern(100, 1))
	batch.Write(good, s.Token(), 0)
	batch.Write(bad, s.Token(), 100)
	bad.Release()
	isError(t, batch.Do(ctx), rdma.ErrReleased)
	if !bytes.Equal(r.Bytes()[:200], make([]byte, 200)) {
		t.Error("a batch with a buffer that was released has written")
	}
	batch.Write(good, s.Token(), 0)
	check(t, batch.Do(ctx))
	good.Release()
	owners(t, p.client, 100)
}

// TestLengthOfBatch checks that the length of an operation is that of its buffer when it was added.
func TestLengthOfBatch(t *testing.T) {
	p := connect(t, nil, nil)
	r, s := p.share(t, 4096, allRights)
	b := must(p.client.Alloc(100))(t)
	copy(b.Bytes(), pattern(100, 1))
	batch := p.client.NewBatch()
	batch.Write(b, s.Token(), 0)
	check(t, b.SetLen(10))
	check(t, batch.Do(limit(t)))
	if !bytes.Equal(r.Bytes()[:101], append(pattern(100, 1), 0)) {
		t.Error("other bytes were written")
	}
	b.Release()
}

// TestFlushedOperations checks that operations that end because another has failed say why.
func TestFlushedOperations(t *testing.T) {
	t.Parallel()
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	p.dial(t, nil, nil)
	p.allow(verbstest.RemoteAccess)
	ctx := limit(t)
	_, s := p.share(t, 64, rdma.CanRead)
	heal := p.net.Partition(p.here, p.there)
	wrong := s.Token()
	wrong.Key ^= 0xff00
	ends := []<-chan error{background(func() error { return p.client.Read(ctx, make([]byte, 8), wrong, 0) })}
	until(t, "it is posted", func() bool { return p.client.Stats().Operations == 1 })
	for range 5 {
		ends = append(ends, background(func() error { return p.client.Read(ctx, make([]byte, 8), s.Token(), 0) }))
	}
	until(t, "they are posted", func() bool { return p.client.Stats().Operations == 6 })
	heal()
	for _, end := range ends {
		isError(t, within(t, end, "Read"), uverbs.WCRemAccessErr)
	}
}
