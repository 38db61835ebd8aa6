package cm

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// endedByClose reports whether err is an error of a call whose id, or whose peer, was closed
// while it ran.
func endedByClose(err error) bool {
	for _, e := range []error{nil, uverbs.ErrClosed, uverbs.ErrInvalid, uverbs.ErrBusy, ErrRejected, ErrDisconnected,
		context.Canceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// concurrently runs calls concurrently and waits for all.
func concurrently(t testing.TB, calls ...func() error) {
	t.Helper()
	var wg, ready sync.WaitGroup
	start := make(chan struct{})
	for k, call := range calls {
		ready.Add(1)
		wg.Go(func() {
			ready.Done()
			<-start
			if err := call(); !endedByClose(err) {
				t.Errorf("call %d: %v", k, err)
			}
		})
	}
	ready.Wait()
	close(start)
	wg.Wait()
}

// rounds limits the loops, and qpRounds those that create QPs, which are slower.
const rounds, qpRounds = 1000, 100

// TestCloseListenerRaces closes a listener while requests arrive, are read and accepted.
func TestCloseListenerRaces(t *testing.T) {
	r := newRig(t)
	ctx := limit(t)
	newSyncID(t, PSTCP) // keeps the pump running
	for range rounds {
		l := good(Listen("192.0.2.1:0", manual))(t)
		a := newSyncID(t, PSTCP)
		check(t, a.ResolveAddr(ctx, netip.AddrPort{}, l.Addr(), 0))
		check(t, a.ResolveRoute(ctx, 0))
		concurrently(t,
			func() error { return a.Connect(ctx, foreign) },
			func() error {
				q, err := l.Request(ctx)
				if err != nil {
					return err
				}
				return q.Reject(nil)
			},
			l.Close)
		check(t, a.Close())
	}
	waitRejected(t, r)
}

// waitRejected waits until the requests that arrived after Close are rejected.
func waitRejected(t testing.TB, r *rig) {
	t.Helper()
	until(t, "one id is left", func() bool { return len(r.IDs()) == 1 })
}

// TestCloseConnectionRaces runs Close of one end concurrently with every other call.
func TestCloseConnectionRaces(t *testing.T) {
	r := newRig(t)
	ctx := limit(t)
	newSyncID(t, PSTCP)
	for k := range qpRounds {
		l, a, p := connection(t)
		calls := []func() error{
			a.Close, p.Close,
			func() error { return a.Disconnect(ctx) },
			func() error { return p.Disconnect(ctx) },
			func() error { <-a.Disconnected(); return nil },
			func() error { return a.PostSend(1, uverbs.Signaled, uverbs.SGE{}) },
			func() error {
				if _, err := p.RecvComp(ctx); !errors.Is(err, uverbs.WCWRFlushErr) {
					return err
				}
				return nil
			},
			func() error { return second(a.Paths()) },
			func() error { a.LocalAddr(); a.PD(); a.Verbs(); a.Event(); return nil },
			l.Close,
		}
		if k%2 == 0 {
			calls = calls[1:] // only one end
		}
		_ = p.PostRecv(1, uverbs.SGE{})
		concurrently(t, calls...)
		check(t, errors.Join(a.Close(), p.Close(), l.Close()))
	}
	waitRejected(t, r)
}

// TestHandshakeRaces calls Close, or ends a context, during the handshake.
func TestHandshakeRaces(t *testing.T) {
	r := newRig(t)
	newSyncID(t, PSTCP)
	for k := range qpRounds {
		ctx, cancel := context.WithCancel(limit(t))
		l := syncListener(t, PSTCP)
		a := readyID(t, l)
		end := [](func() error){a.Close, l.Close, func() error { cancel(); return nil }}[k%3]
		concurrently(t,
			func() error {
				err := a.Connect(ctx, nil)
				if err != nil {
					cancel() // no request will arrive
				}
				return err
			},
			func() error {
				p, err := l.GetRequest(ctx)
				if err != nil {
					return err
				}
				err = p.CreateQP(nil, small)
				if err == nil {
					concurrently(t, func() error { return p.Accept(ctx, nil) }, func() error { cancel(); return nil })
				}
				return errors.Join(err, p.Close())
			},
			func() error { runtime.Gosched(); return end() })
		cancel()
		check(t, errors.Join(a.Close(), l.Close()))
	}
	waitRejected(t, r)
}

// TestMigrateRaces moves an id between channels, and makes it synchronous and asynchronous, while events arrive and the
// channels are read. It checks that each event arrives once and in order.
func TestMigrateRaces(t *testing.T) {
	newRig(t)
	const n = 2000
	ch := [2]*talk{newTalk(t), newTalk(t)}
	i := ch[0].id(PSTCP)
	ctx, cancel := context.WithCancel(limit(t))
	defer cancel()
	var mu sync.Mutex
	var got []uint64
	var readers sync.WaitGroup
	for _, c := range ch {
		readers.Go(func() {
			for {
				e, err := c.Next(ctx)
				if err != nil {
					return
				}
				mu.Lock()
				got = append(got, e.Arg)
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for k := range n {
			if err := i.WriteEvent(0, uint64(k)); err != nil {
				t.Error(err)
			}
		}
	}()
	for k, moving := 0, true; moving; k++ {
		check(t, i.Migrate(ch[k%2].EventChannel))
		select {
		case <-done:
			moving = false
		default:
		}
	}
	until(t, "all events are there", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= n
	})
	cancel()
	readers.Wait()
	seen := make([]bool, n)
	for _, k := range got {
		if k >= n || seen[k] {
			t.Fatalf("event %d came twice", k)
		}
		seen[k] = true
	}
	if len(got) != n {
		t.Errorf("%d events, want %d", len(got), n)
	}
}

// TestMigrateCloseRaces runs Migrate and Sync concurrently with Close, Next and a command.
func TestMigrateCloseRaces(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	for range rounds / 4 {
		i := good(k.CreateID(PSTCP))(t)
		ctx, cancel := context.WithCancel(limit(t))
		concurrently(t,
			func() error {
				s, err := i.Sync()
				if err != nil {
					return err
				}
				return s.ResolveAddr(ctx, netip.AddrPort{}, at(here, 7), 0)
			},
			func() error { return i.Migrate(k.EventChannel) },
			func() error { return second(k.Next(ctx)) },
			func() error { runtime.Gosched(); cancel(); return i.Close() })
		check(t, i.Close())
	}
}

// TestCloseChannelRaces closes a channel while readers wait and their contexts end.
func TestCloseChannelRaces(t *testing.T) {
	newRig(t)
	for range rounds / 4 {
		ch := good(NewEventChannel())(t)
		ctx, cancel := context.WithCancel(limit(t))
		wait := func() error { return second(ch.Next(ctx)) }
		concurrently(t, wait, wait, func() error { cancel(); return nil }, ch.Close, ch.Close,
			func() error {
				i, err := ch.CreateID(PSTCP)
				if err != nil {
					return err
				}
				return i.Close()
			})
		check(t, ch.Close())
	}
}

// TestLeaveRaces ends a membership while its event is in transit.
func TestLeaveRaces(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	for k := range qpRounds {
		s := good(NewID(PSUDP))(t)
		check(t, s.Bind(at(here, 0)))
		check(t, s.CreateQP(nil, small))
		m := good(s.ID.JoinMulticast(group, JoinFull))(t)
		calls := []func() error{m.Leave, m.Leave, s.Close,
			func() error { return second(s.JoinMulticast(ctx, group, JoinFull)) }}
		concurrently(t, calls[k%2:]...)
		check(t, s.Close())
	}
}
