package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// newSyncID returns an id that is closed when the test ends.
func newSyncID(t testing.TB, ps PortSpace) *SyncID {
	t.Helper()
	return closing(t, good(NewID(ps))(t))
}

// syncListener returns a listener on the device.
func syncListener(t testing.TB, ps PortSpace) *SyncID {
	t.Helper()
	l := newSyncID(t, ps)
	check(t, l.Bind(at(here, 0)))
	check(t, l.Listen(0))
	return l
}

// readyID returns an id with a QP that is ready to connect.
func readyID(t testing.TB, to *SyncID) *SyncID {
	t.Helper()
	s := newSyncID(t, to.PortSpace())
	check(t, s.ResolveAddr(limit(t), netip.AddrPort{}, to.LocalAddr(), 0))
	check(t, s.ResolveRoute(limit(t), 0))
	check(t, s.CreateQP(nil, small))
	return s
}

// connection returns a listener and both ends of a connection.
func connection(t testing.TB) (l, a, p *SyncID) {
	t.Helper()
	l = syncListener(t, PSTCP)
	a = readyID(t, l)
	p = connectTo(t, l, a)
	return l, a, p
}

// connectTo connects a to the listener and returns the other end.
func connectTo(t testing.TB, l, a *SyncID) *SyncID {
	t.Helper()
	ctx := limit(t)
	connected := make(chan error, 1)
	go func() { connected <- a.Connect(ctx, nil) }()
	p := closing(t, good(l.GetRequest(ctx))(t))
	check(t, p.CreateQP(nil, small))
	check(t, p.Accept(ctx, nil))
	check(t, <-connected)
	return p
}

// TestSyncConnection checks that each call returns its result, and that the end of one side ends the other.
func TestSyncConnection(t *testing.T) {
	newRig(t)
	_, a, p := connection(t)
	if e := a.Event(); e.Type != EventEstablished || p.Event().Type != EventEstablished || e.Conn.QPN != p.QP().QPN() {
		t.Errorf("%+v, %+v", e, p.Event())
	}
	check(t, p.PostRecv(5, uverbs.SGE{Length: 1}))
	check(t, a.Disconnect(limit(t))) // the pump of the peer replies
	<-a.Disconnected()
	<-p.Disconnected()
	wc, err := p.RecvComp(limit(t))
	if is(t, "a receive", err, uverbs.WCWRFlushErr); wc.WRID != 5 {
		t.Errorf("%+v", wc)
	}
	is(t, "a call after the end", p.call(limit(t), "connect", connectResults, func() error { return nil }),
		ErrDisconnected)
	check(t, a.Disconnect(limit(t)))
}

// TestSyncLastAcknowledgement checks that a send that the peer has received is not reported as lost if the peer then
// disconnects immediately, as rdma_client of rdma-core does. A send that is never acknowledged is reported as lost.
func TestSyncLastAcknowledgement(t *testing.T) {
	for _, acknowledged := range []bool{true, false} {
		t.Run(fmt.Sprint(acknowledged), func(t *testing.T) {
			r := newRig(t)
			_, a, p := connection(t)
			p.ackWait = 0
			if acknowledged {
				p.ackWait = time.Minute
			}
			q := r.loop().delay(p.QP().QPN())
			check(t, p.PostSend(1, uverbs.Signaled, uverbs.SGE{Length: 1}))
			check(t, a.Disconnect(limit(t)))
			if acknowledged {
				q.acknowledge()
			}
			wc, err := p.SendComp(limit(t))
			if wc.WRID != 1 || acknowledged != (err == nil) || !acknowledged && !errors.Is(err, uverbs.WCWRFlushErr) {
				t.Errorf("%+v, %v", wc, err)
			}
			check(t, p.PostRecv(2, uverbs.SGE{Length: 1}))
			is(t, "a receive", second(p.RecvComp(limit(t))), uverbs.WCWRFlushErr)
		})
	}
}

func TestSyncRejected(t *testing.T) {
	newRig(t)
	l := syncListener(t, PSTCP)
	a := readyID(t, l)
	refused := make(chan error, 1)
	go func() { refused <- a.Connect(limit(t), nil) }()
	p := closing(t, good(l.GetRequest(limit(t)))(t))
	check(t, p.Reject([]byte("no")))
	err := <-refused
	var e *Error
	if is(t, "connect", err, ErrRejected, unix.ECONNREFUSED); errors.As(err, &e) &&
		(e.Reason != RejectConsumer || string(e.PrivateData[:3]) != "no\x00") {
		t.Errorf("%+v", e)
	}
	is(t, "disconnect", a.Disconnect(limit(t)), uverbs.ErrInvalid)
	is(t, "silent", newSyncID(t, PSTCP).ResolveAddr(limit(t), netip.AddrPort{}, silent, 0), ErrTimeout)
}

// TestSyncCancelled checks that the id must be closed if a context ends a call, even if the result arrives later.
func TestSyncCancelled(t *testing.T) {
	r := newRig(t)
	cause := errors.New("the operator said so")
	for _, typ := range []EventType{EventAddrResolved, EventRouteResolved, EventConnectResponse, EventMulticastJoin} {
		l := syncListener(t, PSTCP)
		s := newSyncID(t, PSTCP)
		r.Hold(uint32(typ))
		ctx, cancel := context.WithCancelCause(context.Background())
		call := func() error { return s.ResolveAddr(ctx, netip.AddrPort{}, l.LocalAddr(), 0) }
		switch typ {
		case EventRouteResolved:
			check(t, call())
			call = func() error { return s.ResolveRoute(ctx, 0) }
		case EventConnectResponse:
			s = readyID(t, l)
			call = func() error { return s.Connect(ctx, nil) }
		case EventMulticastJoin:
			s = newSyncID(t, PSUDP)
			check(t, s.Bind(at(here, 0)))
			call = func() error { return second(s.JoinMulticast(ctx, netip.MustParseAddr("239.1.1.1"), JoinFull)) }
		}
		n := len(r.Log())
		done := make(chan error, 1)
		go func() { done <- call() }()
		until(t, "the command is issued", func() bool { return len(r.Log()) > n })
		cancel(cause)
		is(t, typ.String(), <-done, cause)
		is(t, "the next call after "+typ.String(), s.ResolveRoute(limit(t), 0), uverbs.ErrInvalid)
		r.Release()
		is(t, "the next call after the reply", s.Connect(limit(t), nil), uverbs.ErrInvalid)
		check(t, errors.Join(s.Close(), l.Close()))
	}
	s := newSyncID(t, PSTCP)
	s.canceledCall = "resolve address"
	_, err := s.JoinMulticast(limit(t), netip.MustParseAddr("239.1.1.1"), JoinFull)
	is(t, "join", err, uverbs.ErrInvalid)
	const want = "cm: join id: its context ended the resolve address before:" +
		" close the id and begin with a new one (EINVAL)"
	if err.Error() != want {
		t.Error(err)
	}
}

// TestGetRequests lets several goroutines wait for requests, and checks that each receives one and that the end of the
// listener wakes the others. A wait that its context ends loses no request.
func TestGetRequests(t *testing.T) {
	newRig(t)
	const n = 8
	l := syncListener(t, PSTCP)
	is(t, "ended", second(l.GetRequest(endedContext())), context.Canceled)
	ctx := limit(t)
	got := make(chan error, 2*n)
	for range 2 * n {
		go func() {
			s, err := l.GetRequest(ctx)
			if err == nil {
				err = s.Close()
			}
			got <- err
		}()
	}
	for range n {
		is(t, "connect", readyID(t, l).Connect(ctx, nil), ErrRejected)
		check(t, <-got)
	}
	check(t, l.Close())
	<-l.Disconnected()
	for range n {
		is(t, "the rest", <-got, uverbs.ErrClosed, unix.EBADF)
	}
}

// TestListenerClosedWithRequests checks that requests that wait when the listener is closed are rejected.
func TestListenerClosedWithRequests(t *testing.T) {
	r := newRig(t)
	ctx := limit(t)
	newSyncID(t, PSTCP) // keeps the pump running
	for _, taken := range []bool{true, false} {
		l := syncListener(t, PSTCP)
		if !taken {
			r.Hold(uint32(EventConnectRequest)) // they stay in the kernel
		}
		var all []chan error
		for range 3 {
			done := make(chan error, 1)
			a := readyID(t, l)
			go func() { done <- a.Connect(ctx, nil) }()
			until(t, "connecting", func() bool { return r.State(a.kernelID) == "connecting" })
			all = append(all, done)
		}
		if taken {
			until(t, "three requests are queued", func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.queue) == 3
			})
		}
		check(t, l.Close())
		for _, done := range all {
			is(t, "connect", <-done, ErrRejected)
		}
		r.Release()
	}
}

// TestLateEvents checks that events for unknown or closed ids and of unknown types are dropped, and that a request for
// a closed listener is rejected.
func TestLateEvents(t *testing.T) {
	r := newRig(t)
	l := syncListener(t, PSTCP)
	s := newSyncID(t, PSTCP)
	r.Inject(s.kernelID, uapi.RdmaUcmEventResp{Uid: 1 << 60, Event: rdmacm.EventEstablished})
	r.Inject(s.kernelID, uapi.RdmaUcmEventResp{Uid: s.uid, Event: 4711})
	r.Inject(s.kernelID, uapi.RdmaUcmEventResp{Uid: s.uid, Event: rdmacm.EventUser})
	gone := good(NewID(PSTCP))(t)
	check(t, gone.Close())
	r.Inject(s.kernelID, uapi.RdmaUcmEventResp{Uid: gone.uid, Event: rdmacm.EventDisconnected})
	check(t, s.ResolveAddr(limit(t), netip.AddrPort{}, l.LocalAddr(), 0))
	check(t, s.ResolveRoute(limit(t), 0))
	unregister(l.uid) // as if it had just been closed
	is(t, "connect", s.Connect(limit(t), foreign), ErrRejected)
}

// TestRemovedDevice checks that waiting calls return after the device is removed, and that all objects can be closed.
func TestRemovedDevice(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	i := k.id(PSTCP)
	check(t, i.Bind(at(here, 0)))
	l, a, p := connection(t)
	wait := make(chan error, 1)
	go func() { wait <- second(l.GetRequest(limit(t))) }()
	r.RemoveDevice()
	is(t, "event", k.next(EventDeviceRemoval, i).Err(), uverbs.ErrDeviceGone, unix.EIO)
	is(t, "GetRequest", <-wait, uverbs.ErrDeviceGone)
	for _, s := range []*SyncID{l, a, p} {
		<-s.Disconnected()
		is(t, "a call", s.call(limit(t), "connect", connectResults, func() error { return nil }), uverbs.ErrDeviceGone)
	}
	is(t, "a command", i.Listen(0), unix.ENXIO)
}

// TestPumpLife checks that the pump exists from the first id to the last.
func TestPumpLife(t *testing.T) {
	newRig(t)
	for range 3 {
		if len(pumps.running) > 0 {
			t.Fatal("a pump without ids")
		}
		a, b := good(NewID(PSTCP))(t), good(NewID(PSTCP))(t)
		p := pumps.running[nil]
		if p == nil || a.pump != p || b.pump != p {
			t.Fatal("each id has its own")
		}
		check(t, a.Close())
		check(t, a.Close())
		check(t, b.ResolveAddr(limit(t), netip.AddrPort{}, at(here, 3), 0))
		check(t, b.Close())
		<-p.done
		is(t, "the node", p.file.SetReadDeadline(time.Time{}), os.ErrClosed)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				s, err := NewID(PSTCP)
				if err == nil {
					err = s.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestPumpBreaks checks that all waits end if the node fails, and that new ids work.
func TestPumpBreaks(t *testing.T) {
	r := newRig(t)
	l := syncListener(t, PSTCP)
	s := newSyncID(t, PSTCP)
	p := l.pump
	wait := make(chan error, 1)
	go func() { wait <- second(l.GetRequest(limit(t))) }()
	r.Set(func() { r.Refuse["GET_EVENT"] = unix.EIO })
	r.Post(l.kernelID, uint32(EventAddrChange), 0)
	is(t, "GetRequest", <-wait, uverbs.ErrDeviceGone, unix.EIO)
	is(t, "resolve", s.ResolveAddr(limit(t), netip.AddrPort{}, at(here, 3), 0), uverbs.ErrDeviceGone)
	<-p.done
	r.Set(func() { clear(r.Refuse) })
	fresh := newSyncID(t, PSTCP)
	if fresh.pump == p {
		t.Error("a new id on the broken pump")
	}
	check(t, fresh.ResolveAddr(limit(t), netip.AddrPort{}, at(here, 3), 0))
	k := newTalk(t)
	check(t, s.Migrate(k.EventChannel))
	check(t, s.Close())
}

// TestPumpBreaksUnderConnection checks that waits for completions also end if the node fails. After the id moves to a
// channel, calls wait again.
func TestPumpBreaksUnderConnection(t *testing.T) {
	r := newRig(t)
	_, active, passive := connection(t)
	spare := newSyncID(t, PSTCP)
	check(t, spare.Bind(at(here, 0)))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	wait := make(chan error, 1)
	go func() { wait <- second(passive.RecvComp(ctx)) }()
	r.Set(func() { r.Refuse["GET_EVENT"] = unix.EIO })
	r.Post(spare.kernelID, uint32(EventAddrChange), 0) // wakes the pump
	is(t, "RecvComp", <-wait, passive.Err(), uverbs.ErrDeviceGone, unix.EIO)
	is(t, "SendComp", second(active.SendComp(ctx)), uverbs.ErrDeviceGone)
	check(t, spare.CreateQP(nil, small))
	is(t, "RecvComp of a new QP", second(spare.RecvComp(ctx)), uverbs.ErrDeviceGone)
	r.Set(func() { clear(r.Refuse) })
	k := newTalk(t)
	check(t, passive.Migrate(k.EventChannel))
	is(t, "RecvComp after the migration", second(passive.RecvComp(endedContext())), context.Canceled)
	check(t, passive.Close())
}

// TestSyncAfterTheEnd checks that calls do not wait for the end of a connection that ended before the id became
// synchronous.
func TestSyncAfterTheEnd(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	a, p := k.pair()
	check(t, a.Disconnect())
	k.next(EventDisconnected, p)
	s := good(p.Sync())(t)
	<-s.Disconnected()
	check(t, s.Disconnect(limit(t)))
	k.next(EventDisconnected, a)
	k.next(EventTimewaitExit, a)
}

// TestPumpBreaksUnderNewIDs creates ids while the node fails, and checks that each works or reports the failure, and
// can be closed.
func TestPumpBreaksUnderNewIDs(t *testing.T) {
	r := newRig(t)
	for range 50 {
		l := good(NewID(PSTCP))(t)
		calls := []func() error{func() error {
			r.Set(func() { r.Refuse["GET_EVENT"] = unix.EIO })
			r.Post(l.kernelID, uint32(EventAddrChange), 0)
			<-l.Disconnected()
			r.Set(func() { clear(r.Refuse) })
			return nil
		}}
		for range 3 {
			calls = append(calls, func() error {
				s, err := NewID(PSTCP)
				if err != nil {
					return err
				}
				err = s.ResolveAddr(limit(t), netip.AddrPort{}, at(here, 3), 0)
				if errors.Is(err, uverbs.ErrDeviceGone) {
					err = nil
				}
				return errors.Join(err, s.Close())
			})
		}
		concurrently(t, calls...)
		check(t, l.Close())
	}
}

// TestUDAcceptEndedContext checks that Accept of a UD id, which has nothing to wait for, does nothing if its context
// has ended.
func TestUDAcceptEndedContext(t *testing.T) {
	r := newRig(t)
	l := syncListener(t, PSUDP)
	c := newSyncID(t, PSUDP)
	check(t, c.ResolveAddr(limit(t), at(here, 0), l.LocalAddr(), 0))
	check(t, c.ResolveRoute(limit(t), 0))
	check(t, c.ID.Connect(nil))
	q := closing(t, good(l.GetRequest(limit(t)))(t))
	n := r.count("ACCEPT")
	is(t, "Accept", q.Accept(endedContext(), &ConnParam{QPN: 7, QKey: UDQKey}), context.Canceled)
	if r.count("ACCEPT") > n {
		t.Error("the request was accepted")
	}
}
