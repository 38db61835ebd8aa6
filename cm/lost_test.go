package cm

import (
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestGroupLost checks that a Group whose membership the network ends reports why, and that its posted requests are
// flushed.
func TestGroupLost(t *testing.T) {
	r := newRig(t)
	g := closing(t, good(JoinMulticast(limit(t), group.String(), &Options{LocalAddr: at(here, 0)}))(t))
	check(t, g.PostRecv(1, uverbs.SGE{Length: 64}))
	var m *Membership
	for m = range g.id.groups {
	}
	r.FailMulticast(m.kernelID, m.uid, -int32(unix.ENETUNREACH))
	is(t, "a receive", second(g.RecvComp(limit(t))), uverbs.WCWRFlushErr, ErrUnreachable)
	is(t, "the next", second(g.RecvComp(limit(t))), ErrUnreachable)
	is(t, "Err", g.Err(), ErrUnreachable)
	is(t, "PostSend", g.PostSend(1, 0, uverbs.SGE{}), ErrUnreachable)
	endsWith(t, g.id, ErrUnreachable)
	const want = "cm: join 239.1.1.1: the network refused the join or ended the membership (ENETUNREACH)"
	if g.id.reason().Error() != want {
		t.Errorf("%v; want %s", g.id.reason(), want)
	}
}

// TestMembershipEnds checks that the end of a membership ends the id even if its event arrives before the wait for the
// join returns. The end of a membership that was left does not end the id, nor does a failed join.
func TestMembershipEnds(t *testing.T) {
	r := newRig(t)
	s := newSyncID(t, PSUDP)
	check(t, s.Bind(at(here, 0)))
	check(t, s.CreateQP(nil, small))
	k := r.loop().k
	k.Set(func() { k.Refuse = map[string]unix.Errno{"ATTACH_MCAST": unix.ENOMEM} })
	is(t, "join", second(s.JoinMulticast(limit(t), group, JoinFull)), unix.ENOMEM)
	k.Set(func() { k.Refuse = nil })

	failed := uapi.RdmaUcmEventResp{Event: rdmacm.EventMulticastError, Status: 1}
	left := good(s.JoinMulticast(limit(t), group, JoinFull))(t)
	r.Set(func() { r.Refuse["LEAVE_MCAST"] = unix.ENOMEM })
	is(t, "leave", left.Leave(), unix.ENOMEM)
	r.Set(func() { clear(r.Refuse) })
	if !left.joined.Load() {
		t.Error("the membership that stays is not joined any more")
	}
	check(t, left.Leave())
	s.push(&record{node: s.node, id: s.ID, mc: left, raw: failed}) // it was already in transit
	if err := s.reason(); err != nil {
		t.Error(err)
	}

	m := good(s.ID.JoinMulticast(group, JoinFull))(t)
	r.FailMulticast(m.kernelID, m.uid, -int32(unix.ENETUNREACH))
	waitQueued(t, s, 3)
	check(t, second(s.await(limit(t), "join", func(r *record) bool { return r.mc == m })))
	endsWith(t, s, ErrUnreachable)
}
