package devicetest

import (
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceIBAddresses connects by GID (AF_IB), which is for InfiniBand. On Ethernet no device has such an address.
func TestDeviceIBAddresses(t *testing.T) {
	begin(t)
	dev := must(uverbs.Open(rdmaDevice()))(t)
	port := must(dev.QueryPort(1))(t)
	gids := must(dev.GIDs(1))(t)
	check(t, dev.Close())
	for _, ps := range []cm.PortSpace{cm.PSIB, cm.PSTCP} {
		t.Run(ps.String(), func(t *testing.T) {
			if port.LinkLayer == uverbs.LinkInfiniBand {
				connectByGID(t, ps, gids[0].GID, port)
			} else {
				noGIDs(t, ps)
			}
		})
	}
}

func noGIDs(t *testing.T, ps cm.PortSpace) {
	ip := netip.MustParseAddr(deviceIP)
	addr := cm.IBAddr{GID: uverbs.GIDFromAddr(ip), PKey: 0xffff, ServiceID: uint64(ps)<<16 | 777}
	k := newTalk(t)
	l := k.id(t, ps)
	isError(t, l.BindIB(addr), []error{uverbs.ErrNoDevice, unix.ENODEV}, addr.GID.String())
	i := k.id(t, ps)
	check(t, i.ResolveIB(nil, addr, 0))
	e := k.good(t, cm.EventAddrResolved, i)
	if i.LocalGID() != addr.GID || i.RemoteGID() != addr.GID || e.ID.LocalAddr().IsValid() {
		t.Errorf("from %v to %v, %v", i.LocalGID(), i.RemoteGID(), i.LocalAddr())
	}
	isError(t, i.ResolveRoute(0), []error{uverbs.ErrNoDevice, unix.ENODEV})
}

// connectByGID connects a port to itself by a path that the program sets, because there
// may be no subnet manager.
func connectByGID(t *testing.T, ps cm.PortSpace, gid uverbs.GID, port *uverbs.PortAttr) {
	addr := cm.IBAddr{GID: gid, PKey: 0xffff, ServiceID: uint64(ps)<<16 | 4777}
	k := newTalk(t)
	l := k.id(t, ps)
	check(t, l.BindIB(addr))
	check(t, l.Listen(0))
	client := k.id(t, ps)
	check(t, client.ResolveIB(nil, addr, 0))
	k.good(t, cm.EventAddrResolved, client)
	if client.LocalGID() != gid || client.RemoteGID() != gid || client.Port() != 1 || client.LocalAddr().IsValid() {
		t.Errorf("from %v, port %d, to %v, %v", client.LocalGID(), client.Port(), client.RemoteGID(), client.LocalAddr())
	}
	path := cm.PathRecord{Flags: cm.PathGMP | cm.PathPrimary | cm.PathBidirectional, DGID: gid, SGID: gid,
		DLID: uint16(port.LID), SLID: uint16(port.LID), Reversible: true, NumPaths: 1, PKey: 0xffff, MTU: port.ActiveMTU,
		Rate: 3, LifeTime: 14}
	isError(t, k.id(t, ps).ResolveIB(&cm.IBAddr{GID: gid, PKey: 0xffff}, addr, 0),
		[]error{uverbs.ErrNotSupported, unix.EPROTONOSUPPORT}, "port space")
	isError(t, client.SetPaths([]cm.PathRecord{{}}), []error{uverbs.ErrInvalid})
	check(t, client.SetPaths([]cm.PathRecord{path}))
	k.good(t, cm.EventRouteResolved, client)
	if got := must(client.Paths())(t); len(got) != 1 || got[0].DLID != path.DLID || got[0].SLID != path.SLID ||
		got[0].DGID != gid {
		t.Errorf("the paths are %+v, set was %+v", got, path)
	}
	check(t, client.CreateQP(nil, small()))
	// The request has no IP addresses: all its private data is the program's, except
	// the first bytes, which the kernel parses as IP versions.
	hello := make([]byte, 92)
	copy(hello[2:], "by GID")
	hello[91] = 9
	check(t, client.Connect(&cm.ConnParam{PrivateData: hello, RetryCount: 6, RNRRetryCount: 7}))
	e := k.good(t, cm.EventConnectRequest, nil)
	child := e.ID
	closing(t, child)
	if string(e.PrivateData) != string(hello) || child.RemoteGID() != gid {
		t.Errorf("%q came from %v", e.PrivateData, child.RemoteGID())
	}
	check(t, child.CreateQP(nil, small()))
	check(t, child.Accept(nil))
	k.established(t, client, child)
	carries(t, client, child, "there")
	carries(t, child, client, "and back")
	check(t, client.Disconnect())
	k.disconnected(t, child)
	check(t, child.Disconnect())
	k.disconnected(t, client)
}
