package rdma_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestShareBesideRegionClose checks that a region that is closed while it is shared has no share afterwards.
func TestShareBesideRegionClose(t *testing.T) {
	t.Parallel()
	all := machines(t)
	all.allow(verbstest.RemoteAccess)
	refused := 0
	for i := range 60 {
		p := &pair{net: all.net, here: all.here, there: all.there}
		p.dial(t, nil, nil)
		p.there.SetCommandTime(time.Millisecond) // so that Close comes between two commands of Share
		ctx := limit(t)
		r := rdma.NewRegion(64)
		shared := make(chan *rdma.Share, 1)
		go func() {
			s, err := p.server.Share(ctx, r, rdma.CanRead)
			if err != nil && !errors.Is(err, rdma.ErrReleased) {
				t.Error(err)
			}
			shared <- s
		}()
		<-time.After(time.Duration(i%8) * 500 * time.Microsecond) // a random moment
		closed := r.Close()
		s := <-shared
		if errors.Is(closed, uverbs.ErrBusy) { // Share had not returned
			closed = r.Close()
		}
		check(t, closed)
		p.there.SetCommandTime(0)
		check(t, p.server.Err())
		if s == nil {
			refused++
			continue
		}
		if err := p.client.Read(ctx, make([]byte, 64), s.Token(), 0); !errors.Is(err, uverbs.WCRemAccessErr) {
			t.Fatalf("the memory of a region that is closed can be read: %v", err)
		}
	}
	if refused == 0 {
		t.Error("Close has never come before the end of Share")
	}
}

// roundTrip checks that a connection is usable.
func roundTrip(t testing.TB, p *pair) {
	t.Helper()
	ctx := limit(t)
	for _, n := range []int{10, 10000} {
		check(t, p.client.Send(ctx, make([]byte, n)))
		m := must(p.server.Recv(ctx))(t)
		if m.Len() != n {
			t.Errorf("a message of %d bytes, not of %d", m.Len(), n)
		}
		m.Release()
		check(t, p.server.Send(ctx, make([]byte, n)))
		m = must(p.client.Recv(ctx))(t)
		m.Release()
	}
}

// TestShareContexts checks that a Share whose context ends leaves a usable connection, also if its request comes
// after others that wait for the peer.
func TestShareContexts(t *testing.T) {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	p.dial(t, nil, nil)
	ctx := limit(t)
	mine := rdma.NewRegion(64)
	token := must(p.client.Share(ctx, mine, rdma.CanRead))(t).Token()
	heal := p.net.Partition(p.here, p.there)
	var reads []<-chan error
	for range 40 { // more than the device asks for at a time
		reads = append(reads, background(func() error { return p.server.Read(ctx, make([]byte, 64), token, 0) }))
	}
	until(t, "the requests are posted", func() bool { return p.server.Stats().Operations == 40 })
	r := rdma.NewRegion(64)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := p.server.Share(short, r, rdma.CanRead)
	isError(t, err, context.DeadlineExceeded)
	heal()
	for _, read := range reads {
		check(t, within(t, read, "Read"))
	}
	roundTrip(t, p)
	check(t, r.Close())
	check(t, mine.Close())
	roundTrip(t, p)
}

// TestConcurrentShares shares and revokes one region from many goroutines on both sides.
func TestConcurrentShares(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	r := rdma.NewRegion(4096)
	var users sync.WaitGroup
	for k := range 8 {
		users.Go(func() {
			from, to := p.client, p.server
			if k%2 == 0 {
				from, to = to, from
			}
			b := make([]byte, 16)
			for i := range 30 {
				s, err := from.ShareRange(ctx, r, k*256, 64+i, rdma.CanRead)
				if err == nil {
					err = to.Read(ctx, b, s.Token(), i)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Revoke(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
	check(t, r.Close())
	roundTrip(t, p)
}

// TestShareFailures makes each command of Share fail.
func TestShareFailures(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	before := p.there.Commands()
	share := func() error {
		r := rdma.NewRegion(64)
		defer func() { check(t, r.Close()) }()
		s, err := p.server.Share(ctx, r, rdma.CanRead)
		if err != nil {
			return err
		}
		check(t, p.client.Read(ctx, make([]byte, 64), s.Token(), 0))
		return s.Revoke()
	}
	check(t, share())
	commands := p.there.Commands() - before
	if commands < 2 {
		t.Errorf("%d commands", commands)
	}
	for i := range commands {
		p.there.FailCommand(i+1, unix.EIO)
		isError(t, share(), unix.EIO)
		check(t, share())
	}
	p.there.SetLimits(verbstest.Limits{MWs: 1})
	r := rdma.NewRegion(64)
	s := must(p.server.Share(ctx, r, rdma.CanRead))(t)
	_, err := p.server.Share(ctx, r, rdma.CanRead)
	isError(t, err, unix.ENOMEM)
	check(t, s.Revoke())
	p.there.SetLimits(verbstest.Limits{Memlock: 4096})
	_, err = p.server.Share(ctx, rdma.NewRegion(1<<20), rdma.CanRead)
	isError(t, err, uverbs.ErrMemlock)
	p.there.SetLimits(verbstest.Limits{})
	check(t, r.Close())
	roundTrip(t, p)
}
