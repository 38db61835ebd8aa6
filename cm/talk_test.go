package cm

import (
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// A talk is an event channel with helpers for tests.
type talk struct {
	*EventChannel
	t testing.TB
}

func newTalk(t testing.TB) *talk {
	t.Helper()
	return &talk{closing(t, good(NewEventChannel())(t)), t}
}

// id returns an id that is closed before its channel.
func (k *talk) id(ps PortSpace) *ID {
	k.t.Helper()
	return closing(k.t, good(k.CreateID(ps))(k.t))
}

// next reads the next event. It must be of this type and, unless i is nil, of that id.
func (k *talk) next(typ EventType, i *ID) *Event {
	k.t.Helper()
	e := good(k.Next(limit(k.t)))(k.t)
	if e.Type != typ || i != nil && e.ID != i {
		k.t.Fatalf("%v of %v, %v; want %v", e.Type, e.ID.LocalAddr(), e.Err(), typ)
	}
	return e
}

// quiet checks that no event is pending: an event that it sends must be the next.
func (k *talk) quiet(i *ID) {
	k.t.Helper()
	check(k.t, i.WriteEvent(0, 7))
	if e := k.next(EventUser, i); e.Arg != 7 || e.Err() != nil {
		k.t.Errorf("%+v", e)
	}
}

// listen returns a listener on the device.
func (k *talk) listen(ps PortSpace) *ID {
	k.t.Helper()
	l := k.id(ps)
	check(k.t, l.Bind(at(here, 0)))
	check(k.t, l.Listen(0))
	return l
}

// resolved returns an id with a resolved route to there.
func (k *talk) resolved(ps PortSpace, there netip.AddrPort) *ID {
	k.t.Helper()
	i := k.id(ps)
	check(k.t, i.ResolveAddr(netip.AddrPort{}, there, 0))
	k.next(EventAddrResolved, i)
	check(k.t, i.ResolveRoute(0))
	k.next(EventRouteResolved, i)
	return i
}

// request connects c, with a QP, and returns the id of the request.
func (k *talk) request(c *ID, p *ConnParam) *ID {
	k.t.Helper()
	check(k.t, c.Connect(p))
	return closing(k.t, k.next(EventConnectRequest, nil).ID)
}

// pair returns both ends of a connection, with QPs and on the channel.
func (k *talk) pair() (active, passive *ID) {
	k.t.Helper()
	l := k.listen(PSTCP)
	active = k.resolved(PSTCP, l.LocalAddr())
	check(k.t, active.CreateQP(nil, small))
	passive = k.request(active, nil)
	check(k.t, passive.CreateQP(nil, small))
	check(k.t, passive.Accept(nil))
	k.next(EventEstablished, active)
	k.next(EventEstablished, passive)
	return active, passive
}

// qpState returns the state of the id's QP.
func qpState(t testing.TB, i *ID) uverbs.QPState {
	t.Helper()
	return i.QP().State()
}
