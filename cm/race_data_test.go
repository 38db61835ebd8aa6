package cm

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDataStress lets many goroutines post to one id and wait for its completions, while others call its accessors. It
// checks that every request completes once and that every message arrives.
func TestDataStress(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	const posters, waiters, each, room = 4, 3, 200, 30
	l := syncListener(t, PSTCP)
	a := newSyncID(t, PSTCP)
	check(t, a.ResolveAddr(ctx, netip.AddrPort{}, l.LocalAddr(), 0))
	check(t, a.ResolveRoute(ctx, 0))
	wide := uverbs.QPConfig{MaxSendWR: 64, MaxRecvWR: 64}
	check(t, a.CreateQP(nil, wide))
	connected := make(chan error, 1)
	go func() { connected <- a.Connect(ctx, nil) }()
	p := closing(t, good(l.GetRequest(ctx))(t))
	check(t, p.CreateQP(nil, wide))
	check(t, p.Accept(ctx, nil))
	check(t, <-connected)

	var sent [posters * each]atomic.Int32
	var ended, arrived atomic.Int64
	sends, receives := make(chan struct{}, room), make(chan struct{}, room) // tokens for posted requests
	var wg sync.WaitGroup
	for k := range posters {
		wg.Go(func() {
			for n := k * each; n < (k+1)*each; n++ {
				for _, c := range []chan struct{}{sends, receives} {
					select {
					case c <- struct{}{}:
					case <-ctx.Done():
						return
					}
				}
				if err := errors.Join(p.PostRecv(uint64(n), uverbs.SGE{}),
					a.PostSend(uint64(n), uverbs.Signaled, uverbs.SGE{})); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range waiters {
		wg.Go(func() {
			for ended.Add(1) <= posters*each {
				wc, err := a.SendComp(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				sent[wc.WRID].Add(1)
				<-sends
			}
		})
		wg.Go(func() {
			for arrived.Add(1) <= posters*each {
				if _, err := p.RecvComp(ctx); err != nil {
					t.Error(err)
					return
				}
				<-receives
			}
		})
	}
	wg.Go(func() {
		for ended.Load() < posters*each {
			a.LocalAddr()
			a.Event()
			if _, err := a.Paths(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Wait()
	for n := range sent {
		if got := sent[n].Load(); got != 1 {
			t.Fatalf("request %d completed %d times", n, got)
		}
	}
	check(t, errors.Join(a.Close(), p.Close(), l.Close()))
}

// TestGroupRaces leaves a group while datagrams are posted to it and calls wait for completions.
func TestGroupRaces(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	newSyncID(t, PSTCP) // keeps the pump running
	for k := range qpRounds {
		g := good(JoinMulticast(ctx, group.String(), &Options{LocalAddr: at(here, 0), QP: small}))(t)
		flushed := func(err error) error {
			if errors.Is(err, uverbs.WCWRFlushErr) {
				return nil
			}
			return err
		}
		calls := []func() error{
			g.Close, g.Close,
			func() error { return g.PostRecv(1, uverbs.SGE{}) },
			func() error { return g.PostSend(1, uverbs.Signaled, uverbs.SGE{}) },
			func() error { return g.PostSend(2, uverbs.Signaled, uverbs.SGE{}) },
			func() error { return flushed(second(g.SendComp(ctx))) },
			func() error { return flushed(second(g.RecvComp(ctx))) },
			func() error { return second(g.id.JoinMulticast(ctx, netip.MustParseAddr("ff0e::9"), JoinSendOnly)) },
			func() error { return closeMR(g.AllocMsgs(64)) },
			func() error { return g.id.SetTOS(1) },
		}
		concurrently(t, calls[k%2:]...)
		check(t, g.Close())
	}
}

// closeMR closes the MR.
func closeMR(mr *uverbs.MR, err error) error {
	if err != nil {
		return err
	}
	return mr.Close()
}
