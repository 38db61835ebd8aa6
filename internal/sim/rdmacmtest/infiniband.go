package rdmacmtest

import (
	"encoding/binary"
	"net/netip"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// infiniBand reports whether the machine's port is on an InfiniBand subnet, with an IPoIB interface.
func (m *Machine) infiniBand() bool { return m.GID.IsValid() }

// gid returns the GID of an end of i. On RoCE it is the address itself.
func (k *Kernel) gid(i *id, a netip.AddrPort) netip.AddrPort {
	if m := k.machineOf(a.Addr()); m != nil && m.infiniBand() {
		return netip.AddrPortFrom(m.GID, a.Port())
	}
	if anyAddr(a.Addr()) && i.device && i.machine.infiniBand() { // a loopback address
		return netip.AddrPortFrom(i.machine.GID, a.Port())
	}
	return a
}

// bindIB binds an id to a GID of the machine.
func (k *Kernel) bindIB(i *id, req *uapi.RdmaUcmBind) unix.Errno {
	gid := netip.AddrFrom16([16]byte(req.Addr[8:24]))
	switch {
	case req.AddrSize != 48 || req.Reserved != 0 || i.state != idle:
		return unix.EINVAL
	case i.machine.gone || gid != i.machine.GID: // on RoCE no network interface has a GID as its address
		return unix.ENODEV
	}
	port := uint16(binary.BigEndian.Uint64(req.Addr[24:]))
	if port == 0 {
		k.port++
		port = k.port
	}
	a := netip.AddrPortFrom(gid, port)
	if errno := k.conflict(i, a, i.reuse); errno != 0 {
		return errno
	}
	i.src, i.ib, i.device, i.state = a, true, true, bound
	return 0
}

// ipoibQKey is the Q_Key of IPoIB's multicast groups.
const ipoibQKey = 0x0b1b

func (i *id) qkey() uint32 {
	if i.ps == uapi.RDMA_PS_IPOIB {
		return ipoibQKey
	}
	return udpQKey
}

// groupAH returns the address vector of a multicast group.
func (k *Kernel) groupAH(i *id, group netip.Addr) uapi.IbUverbsAhAttr {
	if !i.machine.infiniBand() {
		return i.globalAH(group) // the GID of an IPv4 group for RoCE v2 is its address mapped to IPv6
	}
	mgid := groupGID(group, i.ps == uapi.RDMA_PS_UDP)
	lid, ok := k.groupLIDs[mgid]
	if !ok {
		const first = 0xc001 // after the broadcast group of IPoIB
		lid = uint16(first + len(k.groupLIDs))
		k.groupLIDs[mgid] = lid
	}
	return uapi.IbUverbsAhAttr{IsGlobal: 1, PortNum: 1, Dlid: lid, Grh: uapi.IbUverbsGlobalRoute{Dgid: mgid}}
}

// groupGID returns the GID of an IP multicast group on InfiniBand (RFC 4391). The port space UDP has a
// signature of the connection manager in place of IP's.
func groupGID(group netip.Addr, udp bool) [16]byte {
	ip := group.As16()
	if ip[0] == 0xff && ip[1]&0xf0 == 0x10 && ip[2] == 0xa0 && ip[3] == 0x1b { // a GID
		return ip
	}
	gid := [16]byte{0xff, 0x12, 0x40, 0x1b, 0xff, 0xff} // of the link, with the default P_Key
	if group.Is4() {
		copy(gid[12:], ip[12:])
		gid[12] &= 0x0f
	} else {
		gid[2] = 0x60
		copy(gid[6:], ip[6:])
	}
	if udp {
		gid[3] = 0x01
	}
	return gid
}

// roomREQ returns the maximum length of the private data of a request of i.
func (i *id) roomREQ() uint8 {
	if i.ib {
		return roomREQ + headerREQ
	}
	return roomREQ
}
