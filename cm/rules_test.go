package cm

import (
	"context"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// rec is an event of an id.
func rec(i *ID, typ uint32) *record {
	return &record{node: i.node, id: i, raw: uapi.RdmaUcmEventResp{Id: 1 << 30, Event: typ}}
}

// What no call waits for is not kept, a request after the end neither.
func TestPushKeepsNothingUseless(t *testing.T) {
	newRig(t)
	s := newSyncID(t, PSTCP)
	for _, typ := range []EventType{EventAddrChange, EventTimewaitExit, EventUser, EventInternal} {
		s.push(rec(s.ID, uint32(typ)))
	}
	queued(t, s, 0)
	s.end(errOver)
	s.push(rec(s.ID, rdmacm.EventConnectRequest))
	if n := s.waiting(); n != 0 {
		t.Errorf("%d requests wait after the end", n)
	}
}

// A reader leaves an event to others while the id moves, and behind events of
// the id that wait.
func TestClaim(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	i := k.id(PSTCP)
	first, second := rec(i, rdmacm.EventUser), rec(i, rdmacm.EventUser)
	i.depart()
	if i.claim(k.EventChannel, first, false) {
		t.Error("claimed while the id moves")
	}
	i.arrive(nil, nil, k.EventChannel)
	if i.claim(k.EventChannel, second, false) {
		t.Error("claimed before one that waits")
	}
	if len(k.pending) != 2 || k.pending[0] != first || k.pending[1] != second {
		t.Errorf("%v", k.pending)
	}
	k.next(EventUser, i)
	k.next(EventUser, i)
}

// What the peer says of a handshake that failed here is no news, until the next.
func TestFailedHandshake(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	i := k.resolved(PSTCP, k.listen(PSTCP).LocalAddr())
	i.failed = true
	for _, typ := range []EventType{EventRejected, EventDisconnected} {
		if i.react(&Event{Type: typ, ID: i}) {
			t.Errorf("%v is news", typ)
		}
	}
	check(t, i.Connect(foreign))
	if i.failed {
		t.Error("a new handshake has failed already")
	}
	check(t, k.next(EventConnectRequest, nil).ID.Close())
	k.next(EventRejected, i)
}

// The peer has gone while its answer was under way.
func TestAnswerWithdrawn(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	l := k.listen(PSTCP)
	a := k.resolved(PSTCP, l.LocalAddr())
	check(t, a.CreateQP(nil, small))
	check(t, k.request(a, nil).Accept(foreign))
	r.Set(func() { r.Refuse["ACCEPT"] = unix.EINVAL })
	is(t, "the answer", k.next(EventConnectError, a).Err(), ErrDisconnected)
	r.Set(func() { clear(r.Refuse) })
}

// A connection that the program has confirmed can be ended, and one whose QP the
// program has closed.
func TestDisconnectOwn(t *testing.T) {
	newRig(t)
	s := answeredID(t)
	check(t, s.ID.Establish())
	check(t, s.Disconnect(limit(t)))
	_, a, _ := connection(t)
	check(t, a.QP().Close())
	check(t, a.Disconnect(limit(t)))
}

// A call whose context has ended begins nothing, and leaves the id as it was,
// however fast the kernel would have answered.
func TestEndedContextBeginsNothing(t *testing.T) {
	r := newRig(t)
	s, ctx := newSyncID(t, PSUDP), ended()
	check(t, s.Bind(at(here, 0)))
	n := len(r.Log())
	is(t, "resolve", s.ResolveAddr(ctx, at(here, 0), at(here, 7), 0), context.Canceled)
	is(t, "join", second(s.JoinMulticast(ctx, group, JoinFull)), context.Canceled)
	if got := r.Log()[n:]; len(got) > 0 {
		t.Errorf("%v", got)
	}
	good(s.JoinMulticast(limit(t), group, JoinFull))(t)
}
