package cm

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// blockDestroy makes DESTROY_ID of the kernel wait until release is called. entered receives a value for each command
// that has begun.
func blockDestroy(t testing.TB, r *rig) (entered <-chan struct{}, release func()) {
	t.Helper()
	in, hold := make(chan struct{}, 1000), make(chan struct{})
	r.Set(func() {
		r.Before = func(name string) {
			if name == "DESTROY_ID" {
				in <- struct{}{}
				<-hold
			}
		}
	})
	release = func() {
		select {
		case <-hold:
		default:
			close(hold)
		}
	}
	t.Cleanup(release)
	return in, release
}

// TestRejectsDoNotBlockReaders checks that neither the pump nor the reader of a channel waits if the kernel is slow to
// reject requests of one listener.
func TestRejectsDoNotBlockReaders(t *testing.T) {
	r := newRig(t)
	l, k := newSyncID(t, PSTCP), newTalk(t)
	check(t, l.Bind(at(here, 0)))
	check(t, l.Listen(1))
	first, second, other := readyID(t, l), readyID(t, l), newSyncID(t, PSTCP)
	i := k.id(PSTCP)
	entered, release := blockDestroy(t, r)
	check(t, first.ID.Connect(nil))
	check(t, second.ID.Connect(nil))
	<-entered // one of the two is being rejected
	check(t, other.ResolveAddr(limit(t), at(here, 0), l.LocalAddr(), 0))
	r.Inject(i.kernelID, uapi.RdmaUcmEventResp{Uid: 1 << 60, Id: 1 << 30, Event: rdmacm.EventConnectRequest})
	k.quiet(i)
	<-entered
	release()
	until(t, "one is refused", func() bool {
		return (r.State(first.kernelID) == "over") != (r.State(second.kernelID) == "over")
	})
}

// TestLastIDWaitsForRejects checks that Close of the last id waits until all requests are rejected.
func TestLastIDWaitsForRejects(t *testing.T) {
	r := newRig(t)
	l := good(NewID(PSTCP))(t)
	check(t, l.Bind(at(here, 0)))
	p := l.pump
	hold, asked := make(chan struct{}), make(chan struct{})
	var begun atomic.Bool
	r.Set(func() {
		r.Before = func(name string) {
			if name == "DESTROY_ID" && begun.CompareAndSwap(false, true) {
				close(asked)
				<-hold
			}
		}
	})
	r.Inject(l.kernelID, uapi.RdmaUcmEventResp{Uid: 1 << 60, Id: 1 << 30, Event: rdmacm.EventConnectRequest})
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	<-p.done // its reader has returned
	select {
	case err := <-closed:
		t.Errorf("closed (%v) before the refusal was through", err)
	default:
	}
	close(hold)
	check(t, <-closed)
}

// TestCloseReportsRejects checks that Close of the last id reports that the id of a request that was rejected was not
// destroyed.
func TestCloseReportsRejects(t *testing.T) {
	r := newRig(t)
	l := good(NewID(PSTCP))(t)
	check(t, l.Bind(at(here, 0)))
	p := l.pump
	asked := make(chan struct{})
	var once sync.Once
	r.Set(func() {
		r.Refuse["DESTROY_ID"] = unix.EIO
		r.Before = func(name string) {
			if name == "DESTROY_ID" {
				once.Do(func() { close(asked) })
			}
		}
	})
	r.Inject(l.kernelID, uapi.RdmaUcmEventResp{Uid: 1 << 60, Id: 1 << 30, Event: rdmacm.EventConnectRequest})
	<-asked
	is(t, "rejects", p.rejects.wait(), unix.EIO)
	r.Set(func() { delete(r.Refuse, "DESTROY_ID") })
	is(t, "Close", l.Close(), unix.EIO)
}

// TestBacklogAboveMax checks that no more requests wait than the kernel's maximum, even if the backlog is larger.
func TestBacklogAboveMax(t *testing.T) {
	newRig(t)
	s := newSyncID(t, PSTCP)
	check(t, s.Bind(at(here, 0)))
	check(t, s.Listen(1<<30))
	n := 0
	for range maxBacklog + 10 {
		r := &record{node: s.node, id: s.ID, raw: uapi.RdmaUcmEventResp{Event: rdmacm.EventConnectRequest}}
		if refused, why := s.push(r); !refused {
			n++
		} else if is(t, "one too many", why, ErrServerBusy); !strings.Contains(why.Error(), "1024") {
			t.Errorf("%v lacks the limit", why)
		}
	}
	s.removeAll()
	if n != maxBacklog {
		t.Errorf("%d requests wait, want %d", n, maxBacklog)
	}
}

// TestRejectsAreBounded checks that the queue of requests is limited if the kernel is slow to reject those that exceed
// the backlog. Requests beyond the limit stay in the kernel, which has a backlog too. All are rejected in the end.
func TestRejectsAreBounded(t *testing.T) {
	const crowd, most = 2 * maxRejects, maxRejects + maxRejecters
	r := newRig(t)
	l := newSyncID(t, PSTCP)
	check(t, l.Bind(at(here, 0)))
	check(t, l.Listen(1))
	var all []*SyncID
	for range crowd {
		a := good(NewID(PSTCP))(t)
		defer func() { check(t, a.Close()) }()
		check(t, a.ResolveAddr(limit(t), at(here, 0), l.LocalAddr(), 0))
		check(t, a.ResolveRoute(limit(t), 0))
		all = append(all, a)
	}
	entered, release := blockDestroy(t, r)
	defer release()
	for _, a := range all {
		check(t, a.ID.Connect(foreign))
	}
	for range maxRejecters {
		<-entered
	}
	q := &l.pump.rejects
	until(t, "the queue is full", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.queue) == maxRejects
	})
	// One request waits for GetRequest, one was read and waits for a slot, and one is
	// in the kernel's backlog.
	if n := len(r.IDs()) - crowd - 1; n > most+3 {
		t.Errorf("%d of %d requests have ids, want %d at most", n, crowd, most+3)
	}
	release()
	until(t, "all but one are refused", func() bool { return len(r.IDs()) == crowd+2 })
}

// TestNextWhileRejectsWait checks that Next returns when its context ends, while many requests wait to be rejected and
// the kernel is slow.
func TestNextWhileRejectsWait(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	i := good(k.CreateID(PSTCP))(t)
	entered, release := blockDestroy(t, r)
	for n := range 2 * maxRejects {
		r.Inject(i.kernelID, uapi.RdmaUcmEventResp{Uid: 1 << 60, Id: 1<<30 + uint32(n), Event: rdmacm.EventConnectRequest})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	next := make(chan error, 1)
	go func() { next <- second(k.Next(ctx)) }()
	for range maxRejecters {
		<-entered
	}
	q := &k.rejects
	until(t, "the queue is full", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.queue) == maxRejects
	})
	cancel()
	select {
	case err := <-next:
		is(t, "Next", err, context.Canceled)
	case <-time.After(20 * time.Second):
		t.Error("Next does not return when its context ends")
		release()
		<-next
	}
	release()
	check(t, i.Close())
}
