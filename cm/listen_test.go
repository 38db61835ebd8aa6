package cm

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestListenErrors checks that Listen returns an error if it could never accept, and for a loopback address, which the
// kernel treats as the unspecified address.
func TestListenErrors(t *testing.T) {
	newRig(t)
	for _, addr := range []string{"127.0.0.1:7471", "[::1]:7471", "localhost:7471"} {
		l, err := Listen(addr, nil)
		if is(t, addr, err, uverbs.ErrNoDevice); err == nil {
			check(t, l.Close())
		}
	}
	is(t, "a foreign address", second(Listen(nowhere.String(), nil)), uverbs.ErrNoDevice)
	hasProvider = func() bool { return false } // until the rig ends
	l, err := Listen(":7471", nil)
	if is(t, "no provider", err, uverbs.ErrNoProvider); err == nil {
		check(t, l.Close())
	} else if !strings.Contains(err.Error(), `import _ "github.com/goverbs/goverbs/provider/all"`) {
		t.Error(err)
	}
}

// TestReuseAddr checks that SetReuseAddr allows ids that connect to share a port, but not listeners: their error does
// not recommend it.
func TestReuseAddr(t *testing.T) {
	newRig(t)
	o := &ListenOptions{Options: Options{ReuseAddr: true}}
	l := good(Listen("192.0.2.1:7471", o))(t)
	serve(t, l)
	_, err := Listen("192.0.2.1:7471", o)
	if is(t, "a second listener", err, unix.EADDRINUSE); !strings.Contains(err.Error(), "choose another port") {
		t.Error(err)
	}
	bound := newSyncID(t, PSTCP)
	check(t, bound.SetReuseAddr(true))
	check(t, bound.Bind(at(here, 9)))
	_, err = Listen("192.0.2.1:9", o)
	if is(t, "a listener beside", err, unix.EADDRINUSE); strings.Contains(err.Error(), "SetReuseAddr") {
		t.Errorf("advice that does not help: %v", err)
	}
	from := &Options{LocalAddr: netip.MustParseAddrPort("192.0.2.1:4000"), ReuseAddr: true}
	a := good(Dial(limit(t), "192.0.2.1:7471", from))(t)
	b := good(Dial(limit(t), "192.0.2.1:7471", from))(t)
	if a.LocalAddr() != from.LocalAddr || b.LocalAddr() != from.LocalAddr {
		t.Errorf("dialed from %v and %v", a.LocalAddr(), b.LocalAddr())
	}
	check(t, a.Shutdown(limit(t)))
	check(t, b.Shutdown(limit(t)))
}

// TestGroupTexts checks the errors of JoinMulticast for wrong arguments.
func TestGroupTexts(t *testing.T) {
	newRig(t)
	for group, want := range map[string]string{"239.1.2.3:99": "groups have no port",
		"192.0.2.1": "not a multicast address", "239.9.9.9": "Options.LocalAddr"} {
		if _, err := JoinMulticast(limit(t), group, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", group, err, want)
		}
	}
}

// TestRecvOnProgramsSRQ checks that PostRecv of an id whose QP uses the caller's SRQ posts to that SRQ.
func TestRecvOnProgramsSRQ(t *testing.T) {
	newRig(t)
	a := newSyncID(t, PSTCP)
	check(t, a.Bind(at(here, 0)))
	srq := closing(t, good(a.PD().CreateSRQ(uverbs.SRQConfig{MaxWR: 2}))(t))
	cfg := small
	cfg.SRQ = srq
	check(t, a.CreateQP(nil, cfg))
	check(t, a.PostRecv(1, uverbs.SGE{}))
	check(t, a.PostRecv(2))
	is(t, "a receive too many", a.PostRecv(3, uverbs.SGE{}), uverbs.ErrQueueFull)
	check(t, a.Close())
}

// TestChooseZone checks that the zone is the interface that the id uses if several interfaces have the same link-local
// address.
func TestChooseZone(t *testing.T) {
	ip := netip.MustParseAddr("fe80::1")
	gid := uverbs.GIDFromAddr(ip)
	one := []uverbs.GIDEntry{{GID: gid, Index: 0, Netdev: "eth0"}, {GID: gid, Index: 1, Netdev: "eth0"},
		{GID: uverbs.GID{1}, Index: 2, Netdev: "eth1"}}
	vlans := append(one, uverbs.GIDEntry{GID: gid, Index: 3, Netdev: "eth0.7"},
		uverbs.GIDEntry{GID: gid, Index: 4, Netdev: "eth0.8"})
	for _, tc := range []struct {
		entries   []uverbs.GIDEntry
		peer, own string
		requested bool
		used      int
		want      string
	}{
		{one, "", "", false, 0, "eth0"},
		{vlans, "eth0.7", "", false, 0, "eth0.7"},
		{vlans, "", "eth0.8", false, 0, "eth0.8"},
		{vlans, "", "", true, 4, "eth0.8"},
		{vlans, "", "", true, -1, ""},
		{vlans, "", "", false, 4, ""},
		{nil, "eth0", "", false, 0, ""},
	} {
		if got := chooseZone(tc.entries, ip, tc.peer, tc.own, tc.requested, func() int { return tc.used }); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc, got, tc.want)
		}
	}
}
