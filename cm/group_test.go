package cm

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestMembership checks a membership from join to leave: the QP is attached in between.
func TestMembership(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	i := k.id(PSUDP)
	check(t, i.Bind(at(here, 0)))
	check(t, i.CreateQP(nil, small))
	attached := func() int { return r.loop().k.Count("ATTACH_MCAST") - r.loop().k.Count("DETACH_MCAST") }
	m := good(i.JoinMulticast(group, JoinFull))(t)
	e := k.next(EventMulticastJoin, i)
	if e.Membership != m || m.Group != group || e.UD.QPN != 0xffffff || e.UD.AH.DGID != uverbs.GIDFromAddr(group) ||
		attached() != 1 {
		t.Errorf("%+v, %d attached", e, attached())
	}
	sender := good(i.JoinMulticast(netip.MustParseAddr("ff0e::9"), JoinSendOnly))(t)
	if k.next(EventMulticastJoin, i); attached() != 1 {
		t.Errorf("%d attached: one only sends", attached())
	}
	r.FailMulticast(m.kernelID, m.uid, -int32(unix.ENETUNREACH))
	e = k.next(EventMulticastError, i)
	if is(t, "the error", e.Err(), ErrUnreachable, unix.ENETUNREACH); e.Membership != m {
		t.Errorf("%+v", e)
	}
	check(t, m.Leave())
	check(t, m.Leave())
	if attached() != 0 {
		t.Errorf("%d attached", attached())
	}
	// After Leave there are no events of the membership, including those that were
	// queued.
	late := good(i.JoinMulticast(group, JoinFull))(t)
	check(t, late.Leave())
	k.quiet(i)
	// If the QP cannot be attached, the membership reports an error.
	r.loop().k.Set(func() { r.loop().k.Refuse = map[string]unix.Errno{"ATTACH_MCAST": unix.ENOMEM} })
	good(i.JoinMulticast(group, JoinFull))(t)
	is(t, "attach", k.next(EventMulticastError, i).Err(), unix.ENOMEM)
	check(t, i.Close())
	check(t, sender.Leave())
}

// TestLeaveFails checks that the membership remains and can be left later if the kernel refuses to leave.
func TestLeaveFails(t *testing.T) {
	r := newRig(t)
	s := newSyncID(t, PSUDP)
	check(t, s.Bind(at(here, 0)))
	m := good(s.JoinMulticast(limit(t), group, JoinFull))(t)
	r.Set(func() { r.Refuse["LEAVE_MCAST"] = unix.EIO })
	err := m.Leave()
	if is(t, "leave", err, unix.EIO); errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("%v, but the device works", err)
	}
	dev := r.loop().k
	dev.Set(func() { dev.Refuse = map[string]unix.Errno{"DEVICE.QUERY_PORT": unix.EIO, "QUERY_DEVICE": unix.EIO} })
	is(t, "leave, device removed", m.Leave(), uverbs.ErrDeviceGone, unix.EIO)
	dev.Set(func() { clear(dev.Refuse) })
	r.Set(func() { clear(r.Refuse) })
	check(t, m.Leave())
	if _, err := s.JoinMulticastIB(IBAddr{}, 0); err == nil {
		t.Error("the machine in memory knows AF_IB")
	}
}

// TestOptions checks that options reach the kernel with the right values.
func TestOptions(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	i := k.id(PSTCP)
	check(t, errors.Join(i.SetTOS(0x20), i.SetReuseAddr(true), i.SetAFOnly(true), i.SetAckTimeout(9)))
	check(t, i.ResolveAddr(netip.AddrPort{}, at(here, 3), 1))
	k.next(EventAddrResolved, i)
	const usual = uapi.IB_PATH_GMP | uapi.IB_PATH_PRIMARY | uapi.IB_PATH_BIDIRECTIONAL
	is(t, "a path of no use", i.SetPaths([]PathRecord{{}}), unix.EINVAL)
	check(t, i.SetPaths([]PathRecord{{}, {Flags: usual, MTU: uverbs.MTU1024}}))
	k.next(EventRouteResolved, i)
	if n := len(r.Log()); n < 7 {
		t.Errorf("%d commands", n)
	}
	for _, tc := range []struct{ in, want uint32 }{{0, 2000}, {1, 1}, {999_999, 1}, {1_000_000, 1}, {1_000_001, 2}} {
		if got := milliseconds(time.Duration(tc.in)); got != tc.want {
			t.Errorf("%d ns are %d ms, want %d", tc.in, got, tc.want)
		}
	}
	if milliseconds(1<<62) != 1<<31-1 || milliseconds(-1) != 2000 {
		t.Error("the timeout overflows")
	}
}
