package cm

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestConnection runs a connection from request to end, with QPs, and checks their states, the contents of events and
// the negotiated values.
func TestConnection(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	l := k.listen(PSTCP)
	l.Context = "the program's own"
	a := k.resolved(PSTCP, l.LocalAddr())
	check(t, a.CreateQP(nil, small))
	if s := qpState(t, a); s != uverbs.StateInit || a.Port() != 1 || a.PKey() != 0 || a.LocalAddr().Addr() != here {
		t.Errorf("QP %v, port %d, P_Key %#x, address %v", s, a.Port(), a.PKey(), a.LocalAddr())
	}
	check(t, a.SetLocalECE(ECE{VendorID: 5, Options: 6}))
	check(t, a.Connect(&ConnParam{PrivateData: []byte("hello"), ResponderResources: MaxRespRes, InitiatorDepth: 4,
		RetryCount: 3, RNRRetryCount: 2}))
	e := k.next(EventConnectRequest, nil)
	p := closing(t, e.ID)
	if e.Listener != l || p.Context != l.Context || string(e.PrivateData[:6]) != "hello\x00" ||
		e.Conn.ResponderResources != 4 || e.Conn.InitiatorDepth != 16 || p.RemoteECE() != (ECE{5, 6}) ||
		p.RemoteAddr() != a.LocalAddr() || p.LocalAddr() != l.LocalAddr() {
		t.Errorf("%+v of %v at %v", e, p.RemoteAddr(), p.LocalAddr())
	}
	check(t, p.CreateQP(nil, small))
	check(t, p.SetLocalECE(ECE{VendorID: 5, Options: 7}))
	check(t, p.Accept(&ConnParam{PrivateData: []byte("welcome"), ResponderResources: MaxRespRes,
		InitiatorDepth: MaxInitDepth, RNRRetryCount: 1}))
	e = k.next(EventEstablished, a)
	if string(e.PrivateData[:8]) != "welcome\x00" || e.ECE != (ECE{5, 7}) || a.RemoteECE() != e.ECE ||
		e.Conn.QPN != p.QP().QPN() {
		t.Errorf("%+v", e)
	}
	k.next(EventEstablished, p)
	if qpState(t, a) != uverbs.StateRTS || qpState(t, p) != uverbs.StateRTS || r.openings() != 1 {
		t.Errorf("QPs %v and %v, %d openings", qpState(t, a), qpState(t, p), r.openings())
	}
	if paths := good(a.Paths())(t); len(paths) != 1 || paths[0].SGID != a.LocalGID() || paths[0].DGID != a.RemoteGID() {
		t.Errorf("%+v", paths)
	}
	check(t, a.Disconnect())
	if k.next(EventDisconnected, p); qpState(t, a) != uverbs.StateErr {
		t.Errorf("QP %v", qpState(t, a))
	}
	check(t, p.Disconnect())
	k.next(EventTimewaitExit, p)
	is(t, "the end", k.next(EventDisconnected, a).Err(), ErrDisconnected, unix.ECONNRESET)
	k.next(EventTimewaitExit, a)
	k.quiet(l)
}

// TestOwnQPs checks that a program that creates its QPs itself can query their attributes and confirm the reply.
func TestOwnQPs(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	l := k.listen(PSTCP)
	a := k.resolved(PSTCP, l.LocalAddr())
	p := k.request(a, foreign)
	attr, mask, err := p.InitQPAttr(uverbs.StateRTR)
	if check(t, err); attr.DestQPN != foreign.QPN || mask&uverbs.MaskDestQPN == 0 || mask&^knownMask != 0 {
		t.Errorf("%+v, %v", attr, mask)
	}
	reply := *foreign
	reply.QPN = 0x99
	check(t, p.Accept(&reply))
	if e := k.next(EventConnectResponse, a); e.Conn.QPN != 0x99 {
		t.Errorf("%+v", e)
	}
	check(t, p.Notify(uverbs.EventCommEst)) // data has arrived before the confirmation
	k.next(EventEstablished, p)
	is(t, "again", p.Notify(uverbs.EventCommEst), unix.EISCONN)
	is(t, "twice", errors.Join(a.Establish(), a.Establish()), uverbs.ErrInvalid)
	if s := r.State(a.kernelID); s != "established" {
		t.Error(s)
	}
}

func TestRejections(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	l, ul := k.listen(PSTCP), k.listen(PSUDP)
	reject := func(ps PortSpace, l *ID, call func(*ID) error) *Event {
		a := k.resolved(ps, l.LocalAddr())
		check(t, a.CreateQP(nil, small))
		check(t, call(k.request(a, nil)))
		e := good(k.Next(limit(t)))(t)
		if e.ID != a || ps == PSTCP && qpState(t, a) != uverbs.StateErr {
			t.Errorf("%+v, QP %v", e, qpState(t, a))
		}
		return e
	}
	for name, tc := range map[string]struct {
		e      *Event
		reason RejectReason
	}{
		"by the program": {reject(PSTCP, l, func(i *ID) error { return i.Reject([]byte("no")) }), RejectConsumer},
		"vendor":         {reject(PSTCP, l, func(i *ID) error { return i.RejectECE(nil) }), RejectVendorOption},
		"closed":         {reject(PSTCP, l, (*ID).Close), RejectConsumer},
		"datagrams":      {reject(PSUDP, ul, func(i *ID) error { return i.Reject(nil) }), RejectConsumer},
	} {
		var e *Error
		if err := tc.e.Err(); !errors.As(err, &e) || !errors.Is(err, ErrRejected) || e.Reason != tc.reason {
			t.Errorf("%s: %v", name, err)
		} else if name == "by the program" && string(e.PrivateData[:3]) != "no\x00" {
			t.Errorf("%q", e.PrivateData)
		}
	}
	a := k.resolved(PSTCP, l.LocalAddr())
	r.Hold(uint32(EventConnectRequest))
	check(t, a.Connect(foreign))
	r.Expire(a.kernelID)
	is(t, "no reply", k.next(EventUnreachable, a).Err(), ErrUnreachable, ErrTimeout)
	r.Release()
	check(t, good(k.Next(limit(t)))(t).ID.Close()) // the request that arrived after the timeout
	k.quiet(l)
}

// TestResponseFails checks that the connection fails on this side if the QP cannot be moved after the reply, and that a
// rejection by the peer then causes no event.
func TestResponseFails(t *testing.T) {
	for _, command := range []string{"INIT_QP_ATTR", "ACCEPT"} {
		r := newRig(t)
		k := newTalk(t)
		l := k.listen(PSTCP)
		a := k.resolved(PSTCP, l.LocalAddr())
		check(t, a.CreateQP(nil, small))
		p := k.request(a, nil)
		check(t, p.Accept(foreign))
		r.Set(func() { r.Refuse[command] = unix.ENOMEM })
		e := k.next(EventConnectError, a)
		is(t, command, e.Err(), unix.ENOMEM)
		if e.Status != -int(unix.ENOMEM) || qpState(t, a) != uverbs.StateErr {
			t.Errorf("status %d, QP %v", e.Status, qpState(t, a))
		}
		r.Set(func() { clear(r.Refuse) })
		check(t, p.Reject(nil)) // or the kernel rejects after its timeout
		k.quiet(l)
		check(t, errors.Join(a.Close(), p.Close(), l.Close()))
	}
}

// TestDatagrams checks that a datagram id receives the destination for sends.
func TestDatagrams(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	l := k.listen(PSUDP)
	a := k.resolved(PSUDP, l.LocalAddr())
	check(t, a.CreateQP(nil, small))
	p := k.request(a, nil)
	check(t, p.CreateQP(nil, small))
	check(t, p.Accept(&ConnParam{PrivateData: []byte("here")}))
	e := k.next(EventEstablished, a)
	if e.UD.QPN != p.QP().QPN() || e.UD.QKey != UDQKey || string(e.PrivateData[:5]) != "here\x00" ||
		qpState(t, a) != uverbs.StateRTS {
		t.Errorf("%+v", e)
	}
	check(t, p.PostRecv(9, uverbs.SGE{Length: 64}))
	ah := closing(t, good(a.PD().CreateAH(e.UD.AH))(t))
	check(t, a.PostUDSend(8, uverbs.Signaled, ah, e.UD.QPN, uverbs.SGE{Length: 5}))
	if wc := good(p.RecvComp(limit(t)))(t); wc.WRID != 9 {
		t.Errorf("%+v", wc)
	}
	k.quiet(l)
}

// TestMigrateHeld checks that events that wait in the kernel or in a queue reach the channel that the id has moved to,
// for each way of moving it.
func TestMigrateHeld(t *testing.T) {
	for name, move := range map[string]func(*ID, *talk, *talk) error{
		"channel": func(i *ID, _, to *talk) error { return i.Migrate(to.EventChannel) },
		"same channel": func(i *ID, from, to *talk) error {
			return errors.Join(i.Migrate(from.EventChannel), i.Migrate(to.EventChannel))
		},
		"to and fro": func(i *ID, from, to *talk) error {
			return errors.Join(i.Migrate(to.EventChannel), i.Migrate(from.EventChannel), i.Migrate(to.EventChannel))
		},
		"through Sync": func(i *ID, _, to *talk) error { return errors.Join(second(i.Sync()), i.Migrate(to.EventChannel)) },
		"Sync and back": func(i *ID, from, to *talk) error {
			return errors.Join(second(i.Sync()), i.Migrate(from.EventChannel), i.Migrate(to.EventChannel))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			from, to := newTalk(t), newTalk(t)
			i := from.id(PSTCP)
			r.Hold(uint32(EventAddrResolved))
			check(t, i.ResolveAddr(netip.AddrPort{}, at(here, 7), 0))
			r.Post(i.kernelID, uint32(EventAddrChange), 0) // waits in the kernel
			check(t, move(i, from, to))
			r.Release()
			if e := good(to.Next(limit(t)))(t); e.Type == EventAddrChange {
				to.next(EventAddrResolved, i)
			} else if name != "through Sync" && name != "Sync and back" { // where no call waits for ADDR_CHANGE
				t.Errorf("%v before ADDR_CHANGE", e.Type)
			}
			check(t, i.ResolveRoute(0))
			to.next(EventRouteResolved, i)
			from.quiet(from.id(PSTCP))
			to.quiet(to.id(PSTCP))
		})
	}
}

// TestMigrateQueued checks that events that a SyncID has not processed move with the id, also if the id moves again
// before the first channel is read.
func TestMigrateQueued(t *testing.T) {
	for name, again := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			newRig(t)
			first, last := newTalk(t), newTalk(t)
			s := closing(t, good(NewID(PSTCP))(t))
			check(t, s.ID.ResolveAddr(netip.AddrPort{}, at(here, 7), 0)) // no call waits for the result
			until(t, "the event is queued", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.queue) > 0
			})
			check(t, s.Migrate(first.EventChannel))
			to := first
			if again {
				to = last
				check(t, s.Migrate(last.EventChannel))
			}
			to.next(EventAddrResolved, s.ID)
			back := good(s.Sync())(t)
			check(t, back.ResolveRoute(limit(t), 0))
			<-s.Disconnected() // of the former SyncID
			is(t, "the SyncID that was", s.ResolveRoute(limit(t), 0), uverbs.ErrInvalid)
			check(t, s.Close())
		})
	}
}

// TestSyncQueued checks that an event that is pending in a channel moves to the SyncID when its id becomes synchronous.
func TestSyncQueued(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	s := closing(t, good(NewID(PSTCP))(t))
	check(t, s.ID.ResolveAddr(netip.AddrPort{}, at(here, 7), 0))
	until(t, "the event is queued", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queue) > 0
	})
	check(t, s.Migrate(k.EventChannel))
	back := good(s.Sync())(t)
	ctx, cancel := context.WithCancel(limit(t))
	defer cancel()
	e, err := back.await(ctx, "resolve address", addrResults)
	if check(t, err); e.Type != EventAddrResolved {
		t.Errorf("%+v", e)
	}
	check(t, back.Close())
}

// TestMigrateEnded checks that the event that has ended a SyncID is returned by the channel that the id moves to, also
// if the id was moved back and forth before. Disconnect waits for this event and consumes it.
func TestMigrateEnded(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	_, a, p := connection(t)
	check(t, p.Disconnect(limit(t)))
	<-a.Disconnected() // the pump has read the event, and no call has returned it
	check(t, a.Migrate(k.EventChannel))
	s := good(a.ID.Sync())(t)
	<-s.Disconnected()
	is(t, "the id made synchronous once more", s.Err(), ErrDisconnected)
	check(t, s.Migrate(k.EventChannel))
	k.next(EventDisconnected, a.ID)
	check(t, p.Migrate(k.EventChannel))
	k.quiet(p.ID)
}
