package devicetest

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// member joins a group on an interface, as package cm does through the kernel.
func member(t *testing.T, group netip.Addr, netdev string) {
	t.Helper()
	family := unix.AF_INET
	if group.Is6() {
		family = unix.AF_INET6
	}
	fd := must(unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { unix.Close(fd) })
	index := must(net.InterfaceByName(netdev))(t).Index
	if group.Is4() {
		check(t, unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
			&unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)}))
	} else {
		check(t, unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)}))
	}
}

func TestDeviceMcast(t *testing.T) {
	for _, text := range []string{"239.7.7.7", "ff12::7:7"} {
		t.Run(strings.ReplaceAll(text, ":", "."), func(t *testing.T) {
			group := netip.MustParseAddr(text)
			dev := openDevice(t)
			pd := must(dev.AllocPD())(t)
			var gid uverbs.GIDEntry
			for _, g := range must(dev.RankGIDs(0, netip.Addr{}))(t) {
				if g.Score >= 0 && g.GID.Addr().Is4() == group.Is4() {
					gid = g.GIDEntry
				}
			}
			a, b, c := newStation(t, pd, gid, nil), newStation(t, pd, gid, nil), newStation(t, pd, gid, nil)
			member(t, group, gid.Netdev)
			mgid := uverbs.GIDFromAddr(group)
			for _, s := range []*station{b, c} {
				check(t, s.qp.AttachMcast(mgid, 0))
				check(t, s.qp.AttachMcast(mgid, 0))
				s.listen(t, 0)
			}
			ah := must(pd.CreateAH(uverbs.AHAttr{IsGlobal: true, DGID: mgid, SGIDIndex: uint8(gid.Index), HopLimit: 1,
				Port: uint8(gid.Port)}))(t)
			post(t, a.qp, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: 0xffffff, QKey: qkey,
				Inline: []byte("to all")})
			a.success(t, 0, uverbs.WCSend)
			for _, s := range []*station{b, c} {
				wc, grh, data := s.datagram(t, 0)
				if string(data) != "to all" || wc.SrcQP != a.qp.QPN() {
					t.Fatalf("%q arrived: %+v", data, wc)
				}
				if attr := must(dev.AHAttrFromWC(gid.Port, &wc, grh))(t); attr.DGID != gid.GID || int(attr.SGIDIndex) != gid.Index {
					t.Errorf("the sender's address is %+v", attr)
				}
			}
			check(t, b.qp.DetachMcast(mgid, 0))
			if err := b.qp.DetachMcast(mgid, 0); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("DetachMcast of a group that was left: %v", err)
			}
			c.listen(t, 0)
			post(t, a.qp, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: 0xffffff, QKey: qkey,
				Inline: []byte("to c")})
			c.datagram(t, 0)
			b.silent(t, 0)
			check(t, c.qp.Close()) // leaves the group
			check(t, c.qp.Close())
		})
	}
}
