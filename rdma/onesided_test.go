package rdma_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// share shares a region of n bytes of the server with the client.
func (p *pair) share(t testing.TB, n int, rights rdma.Rights) (*rdma.Region, *rdma.Share) {
	t.Helper()
	r := rdma.NewRegion(n)
	t.Cleanup(func() { check(t, r.Close()) })
	return r, must(p.server.Share(limit(t), r, rights))(t)
}

const allRights = rdma.CanRead | rdma.CanWrite | rdma.CanAtomic

// TestOneSided reads, writes, swaps and adds, with and without copies.
func TestOneSided(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	const size = 3 << 20
	r, s := p.share(t, size, allRights)
	token := s.Token()
	for i, n := range []int{0, 1, 128, 129, 5000, 1 << 20, 1<<20 + 1, size - 16} {
		b := pattern(n, i)
		check(t, p.client.Write(ctx, b, token, 16))
		if !bytes.Equal(r.Bytes()[16:16+n], b) {
			t.Errorf("%d bytes: others were written", n)
		}
		got := make([]byte, n)
		check(t, p.client.Read(ctx, got, token, 16))
		if !bytes.Equal(got, b) {
			t.Errorf("%d bytes: others were read", n)
		}
	}
	b := must(p.client.Alloc(1000))(t)
	copy(b.Bytes(), pattern(1000, 9))
	check(t, p.client.WriteBuffer(ctx, b, token, 100))
	check(t, b.SetLen(500))
	check(t, p.client.ReadBuffer(ctx, b, token, 600))
	if !bytes.Equal(b.Bytes(), pattern(1000, 9)[500:]) {
		t.Error("other bytes were read")
	}
	b.Release()
	binary.NativeEndian.PutUint64(r.Bytes()[8:], 40)
	if v := must(p.client.FetchAdd(ctx, token, 8, 2))(t); v != 40 {
		t.Errorf("FetchAdd returned %d", v)
	}
	if v := must(p.client.CompareAndSwap(ctx, token, 8, 42, 7))(t); v != 42 {
		t.Errorf("CompareAndSwap returned %d", v)
	}
	if v := binary.NativeEndian.Uint64(r.Bytes()[8:]); v != 7 {
		t.Errorf("the number is %d", v)
	}
}

// TestWriteImm checks that the message of a WriteImm comes after its data and between other messages.
func TestWriteImm(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Depth: 3})
	ctx := limit(t)
	r, s := p.share(t, 4096, rdma.CanWrite)
	errs := make(chan error, 1)
	const rounds = 30
	go func() {
		for i := range uint32(rounds) {
			err := p.client.WriteImm(ctx, pattern(100, int(i)), s.Token(), 0, i)
			if err == nil {
				err = p.client.Send(ctx, []byte("next"))
			}
			if err == nil {
				var m rdma.Message
				m, err = p.client.Recv(ctx)
				m.Release()
			}
			if err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	for i := range uint32(rounds) {
		m := must(p.server.Recv(ctx))(t)
		if imm, ok := m.Imm(); !ok || imm != i || m.Len() != 100 || m.Bytes() != nil {
			t.Errorf("message %d has %d (%v), %d bytes", i, imm, ok, m.Len())
		}
		if !bytes.Equal(r.Bytes()[:100], pattern(100, int(i))) {
			t.Errorf("message %d: other data", i)
		}
		m.Release()
		m = must(p.server.Recv(ctx))(t)
		if _, ok := m.Imm(); ok || string(m.Bytes()) != "next" {
			t.Errorf("message %d: %q", i, m.Bytes())
		}
		m.Release()
		check(t, p.server.Send(ctx, nil))
	}
	check(t, <-errs)
}

// TestBatch checks batches longer than the send queue.
func TestBatch(t *testing.T) {
	p := connect(t, &rdma.Options{Depth: 2}, nil)
	ctx := limit(t)
	const n = 300
	r, s := p.share(t, n*64, rdma.CanRead|rdma.CanWrite)
	batch := p.client.NewBatch()
	for round, write := range []bool{true, false} {
		var bufs []rdma.Buffer
		for i := range n {
			b := must(p.client.Alloc(64))(t)
			bufs = append(bufs, b)
			if write {
				copy(b.Bytes(), pattern(64, i))
				batch.Write(b, s.Token(), i*64)
			} else {
				batch.Read(b, s.Token(), i*64)
			}
		}
		if batch.Len() != n {
			t.Errorf("the batch has %d operations", batch.Len())
		}
		check(t, batch.Do(ctx))
		for i, b := range bufs {
			if !bytes.Equal(b.Bytes(), pattern(64, i)) || !bytes.Equal(r.Bytes()[i*64:][:64], pattern(64, i)) {
				t.Errorf("round %d, operation %d: other data", round, i)
			}
			b.Release()
		}
	}
	b := must(p.client.Alloc(64))(t)
	defer b.Release()
	batch.Read(b, s.Token(), n*64-63)
	isError(t, batch.Do(ctx), rdma.ErrBounds)
	check(t, batch.Do(ctx))
}

// TestRights checks that an operation that a token does not permit is not sent.
func TestRights(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	_, s := p.share(t, 100, rdma.CanRead)
	token, b := s.Token(), make([]byte, 10)
	for _, off := range []int{-1, 91, 101, 1 << 62} {
		isError(t, p.client.Read(ctx, b, token, off), rdma.ErrBounds)
	}
	isError(t, p.client.Write(ctx, b, token, 0), rdma.ErrRights)
	isError(t, p.client.WriteImm(ctx, b, token, 0, 1), rdma.ErrRights)
	_, err := p.client.FetchAdd(ctx, token, 0, 1)
	isError(t, err, rdma.ErrRights)
	check(t, p.client.Read(ctx, b, token, 90))
	r := rdma.NewRegion(100)
	_, err = p.server.Share(ctx, r, 0)
	isError(t, err, uverbs.ErrInvalid)
	_, err = p.server.ShareRange(ctx, r, 50, 51, rdma.CanRead)
	isError(t, err, rdma.ErrBounds)
	check(t, r.Close())
	_, err = p.server.Share(ctx, r, rdma.CanRead)
	isError(t, err, rdma.ErrReleased)
}

// TestRevoke checks that nothing can be read after Revoke, and that this ends the connection of a peer that tries.
func TestRevoke(t *testing.T) {
	for name, revoke := range map[string]func(r *rdma.Region, s *rdma.Share) error{
		"share":  func(_ *rdma.Region, s *rdma.Share) error { return s.Revoke() },
		"region": func(r *rdma.Region, _ *rdma.Share) error { return r.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, nil, nil)
			p.allow(verbstest.RemoteAccess)
			ctx := limit(t)
			r, s := p.share(t, 100, rdma.CanRead)
			b := make([]byte, 100)
			check(t, p.client.Read(ctx, b, s.Token(), 0))
			check(t, revoke(r, s))
			check(t, s.Revoke())
			err := p.client.Read(ctx, b, s.Token(), 0)
			isError(t, err, uverbs.WCRemAccessErr)
			isError(t, err, rdma.ErrDisconnected)
			if !strings.Contains(err.Error(), "the share of the token has ended") || strings.Contains(err.Error(), "RKey") {
				t.Errorf("the error is not in the words of this package: %v", err)
			}
			isError(t, p.client.Send(ctx, nil), rdma.ErrDisconnected)
		})
	}
}

// TestTokensOfOthers checks that a token is of no use on another connection, even one between the same machines.
func TestTokensOfOthers(t *testing.T) {
	p := connect(t, nil, nil)
	q := &pair{net: p.net, here: p.here, there: p.there}
	q.dial(t, nil, nil)
	p.allow(verbstest.RemoteAccess)
	ctx := limit(t)
	_, s := p.share(t, 100, allRights)
	b := make([]byte, 8)
	check(t, p.client.Read(ctx, b, s.Token(), 0))
	isError(t, q.client.Read(ctx, b, s.Token(), 0), uverbs.WCRemAccessErr)
	check(t, p.client.Read(ctx, b, s.Token(), 0))
	wider := s.Token()
	wider.Len++
	isError(t, p.client.Read(ctx, b, wider, 93), uverbs.WCRemAccessErr)
}

// TestContextsOfOperations checks that an operation returns when its context ends, and that its buffer comes back when
// the device does not use it any more.
func TestContextsOfOperations(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	r, s := p.share(t, 1000, rdma.CanRead|rdma.CanWrite)
	copy(r.Bytes(), pattern(1000, 3))
	heal := p.net.Partition(p.here, p.there)
	b := must(p.client.Alloc(1000))(t)
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	isError(t, p.client.ReadBuffer(short, b, s.Token(), 0), context.DeadlineExceeded)
	isError(t, p.client.Write(short, make([]byte, 10), s.Token(), 990), context.DeadlineExceeded)
	b.Release()
	heal()
	again := must(p.client.Alloc(1000))(t) // not the memory that is still read into
	clear(again.Bytes())
	got := make([]byte, 990)
	check(t, p.client.Read(ctx, got, s.Token(), 0))
	if !bytes.Equal(got, pattern(1000, 3)[:990]) || !bytes.Equal(again.Bytes(), make([]byte, 1000)) {
		t.Error("other bytes were read")
	}
	again.Release()
}

// TestToken checks the encoding of tokens.
func TestToken(t *testing.T) {
	want := rdma.Token{Addr: 1 << 40, Len: 12345, Key: 0xdeadbeef, Rights: rdma.CanRead | rdma.CanAtomic}
	b := must(want.MarshalBinary())(t)
	var got rdma.Token
	check(t, got.UnmarshalBinary(b))
	if got != want || len(b) != rdma.TokenLen {
		t.Errorf("%+v in %d bytes", got, len(b))
	}
	for _, change := range []func(b []byte) []byte{
		func(b []byte) []byte { return b[:23] },
		func(b []byte) []byte { return append(b, 0) },
		func(b []byte) []byte { b[21] = 0; return b },
		func(b []byte) []byte { b[15] = 0xff; return b },
	} {
		isError(t, got.UnmarshalBinary(change(bytes.Clone(b))), rdma.ErrProtocol)
		if got != want {
			t.Error("the token was changed")
		}
	}
	later := bytes.Clone(b)
	later[21]++
	isError(t, got.UnmarshalBinary(later), rdma.ErrVersion)
	later = bytes.Clone(b) // of this version, with what a later one adds
	later[20], later[22], later[23] = later[20]|8, 1, 1
	got = rdma.Token{}
	check(t, got.UnmarshalBinary(later))
	if got != want {
		t.Errorf("%+v", got)
	}
}
