package cm

import (
	"context"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// eventRecord returns an event of an id.
func eventRecord(i *ID, typ uint32) *record {
	return &record{node: i.node, id: i, raw: uapi.RdmaUcmEventResp{Id: 1 << 30, Event: typ}}
}

// TestPushDropsUselessEvents checks that events that no call waits for are not queued, and neither is a request after
// the end.
func TestPushDropsUselessEvents(t *testing.T) {
	newRig(t)
	s := newSyncID(t, PSTCP)
	for _, typ := range []EventType{EventAddrChange, EventTimewaitExit, EventUser, eventInternal} {
		s.push(eventRecord(s.ID, uint32(typ)))
	}
	waitQueued(t, s, 0)
	s.life.end(phaseEnded, errOver)
	s.closeDone()
	s.push(eventRecord(s.ID, rdmacm.EventConnectRequest))
	if n := s.requestCount(); n != 0 {
		t.Errorf("%d requests wait after the end", n)
	}
}

// TestClaim checks that a reader does not claim an event while the id moves, or while events of the id are pending.
func TestClaim(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	i := k.id(PSTCP)
	first, second := eventRecord(i, rdmacm.EventUser), eventRecord(i, rdmacm.EventUser)
	i.beginMove()
	if i.claim(k.EventChannel, first, false) {
		t.Error("claimed while the id moves")
	}
	i.endMove(nil, nil, k.EventChannel)
	if i.claim(k.EventChannel, second, false) {
		t.Error("claimed before one that waits")
	}
	if len(k.pending) != 2 || k.pending[0] != first || k.pending[1] != second {
		t.Errorf("%v", k.pending)
	}
	k.next(EventUser, i)
	k.next(EventUser, i)
}

// TestFailedHandshake checks that messages of the peer about a handshake that failed here cause no event, until the
// next handshake.
func TestFailedHandshake(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	i := k.resolved(PSTCP, k.listen(PSTCP).LocalAddr())
	i.life.enter(phaseConnecting)
	i.life.enter(phaseFailed)
	for _, typ := range []EventType{EventRejected, EventDisconnected} {
		if i.react(&Event{Type: typ, ID: i}) {
			t.Errorf("%v is news", typ)
		}
	}
	check(t, i.Connect(foreign))
	if i.life.current() == phaseFailed {
		t.Error("a new handshake has failed already")
	}
	check(t, k.next(EventConnectRequest, nil).ID.Close())
	k.next(EventRejected, i)
}

// TestResponseWithdrawn accepts a request that the peer has withdrawn.
func TestResponseWithdrawn(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	l := k.listen(PSTCP)
	a := k.resolved(PSTCP, l.LocalAddr())
	check(t, a.CreateQP(nil, small))
	check(t, k.request(a, nil).Accept(foreign))
	r.Set(func() { r.Refuse["ACCEPT"] = unix.EINVAL })
	is(t, "the reply", k.next(EventConnectError, a).Err(), ErrDisconnected)
	r.Set(func() { clear(r.Refuse) })
}

// TestDisconnectOwn checks that Disconnect works for a connection that the program has confirmed, and for one whose QP
// the program has closed.
func TestDisconnectOwn(t *testing.T) {
	newRig(t)
	s := respondedID(t)
	check(t, s.ID.Establish())
	check(t, s.Disconnect(limit(t)))
	_, a, _ := connection(t)
	check(t, a.QP().Close())
	check(t, a.Disconnect(limit(t)))
}

// TestEndedContextBeginsNothing checks that a call whose context has ended issues no command and does not change the
// id, even if the kernel would reply immediately.
func TestEndedContextBeginsNothing(t *testing.T) {
	r := newRig(t)
	s, ctx := newSyncID(t, PSUDP), endedContext()
	check(t, s.Bind(at(here, 0)))
	n := len(r.Log())
	is(t, "resolve", s.ResolveAddr(ctx, at(here, 0), at(here, 7), 0), context.Canceled)
	is(t, "join", second(s.JoinMulticast(ctx, group, JoinFull)), context.Canceled)
	if got := r.Log()[n:]; len(got) > 0 {
		t.Errorf("%v", got)
	}
	good(s.JoinMulticast(limit(t), group, JoinFull))(t)
}
