package cm

import (
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// A talk is an event channel with what a test wants of it.
type talk struct {
	*EventChannel
	t testing.TB
}

func newTalk(t testing.TB) *talk {
	t.Helper()
	return &talk{closing(t, good(NewEventChannel())(t)), t}
}

// id makes an id that is closed before its channel.
func (k *talk) id(ps PortSpace) *ID {
	k.t.Helper()
	return closing(k.t, good(k.CreateID(ps))(k.t))
}

// next takes the next event, which must be this one, of that id unless it is
// nil.
func (k *talk) next(typ EventType, i *ID) *Event {
	k.t.Helper()
	e := good(k.Next(limit(k.t)))(k.t)
	if e.Type != typ || i != nil && e.ID != i {
		k.t.Fatalf("%v of %v, %v; want %v", e.Type, e.ID.LocalAddr(), e.Err(), typ)
	}
	return e
}

// quiet sees to it that no event waits: one that the test sends is the next.
func (k *talk) quiet(i *ID) {
	k.t.Helper()
	check(k.t, i.WriteEvent(0, 7))
	if e := k.next(EventUser, i); e.Arg != 7 || e.Err() != nil {
		k.t.Errorf("%+v", e)
	}
}

// listen makes a listener on the device.
func (k *talk) listen(ps PortSpace) *ID {
	k.t.Helper()
	l := k.id(ps)
	check(k.t, l.Bind(at(here, 0)))
	check(k.t, l.Listen(0))
	return l
}

// resolved makes an id that can connect to there.
func (k *talk) resolved(ps PortSpace, there netip.AddrPort) *ID {
	k.t.Helper()
	i := k.id(ps)
	check(k.t, i.ResolveAddr(netip.AddrPort{}, there, 0))
	k.next(EventAddrResolved, i)
	check(k.t, i.ResolveRoute(0))
	k.next(EventRouteResolved, i)
	return i
}

// request connects c, with a QP, and takes the request.
func (k *talk) request(c *ID, p *ConnParam) *ID {
	k.t.Helper()
	check(k.t, c.Connect(p))
	return closing(k.t, k.next(EventConnectRequest, nil).ID)
}

// pair is a connection: both ids are on the channel, with QPs.
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

// state is that of the id's QP.
func state(t testing.TB, i *ID) uverbs.QPState {
	t.Helper()
	return i.QP().State()
}
