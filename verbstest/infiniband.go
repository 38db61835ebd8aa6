package verbstest

import (
	"net/netip"

	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// InfiniBand makes the network an InfiniBand subnet with a subnet manager, in place of an Ethernet
// with RoCE. Ports have LIDs, the IP addresses of the machines are those of IPoIB interfaces, and
// paths within the subnet have no GRH.
func InfiniBand() Option { return func(n *Network) { n.infiniBand = true } }

// mtu4096 is the MTU of ports: enum ibv_mtu.
const mtu4096 = 5

// smLID is the LID of the subnet manager. Those of the machines follow.
const smLID = 1

// useInfiniBand gives the machine a port of a subnet and an IPoIB interface.
func (m *Machine) useInfiniBand(number int) {
	m.lid = uint16(smLID + number)
	gid := [16]byte{0xfe, 0x80} // the default prefix of a subnet
	copy(gid[8:], eui64(m.mac))
	local := gid
	local[8] |= 2 // "universal", in addresses of interfaces only (RFC 4391)
	m.local = netip.AddrFrom16(local)
	m.gids = []uapi.IbUverbsGidEntry{{Gid: gid, PortNum: 1, GidType: uapi.IB_UVERBS_GID_TYPE_IB}}
	m.cm.Addrs = []netip.Addr{m.addr, m.addr6, m.local}
	m.cm.SGIDs, m.cm.LID, m.cm.GID = nil, m.lid, netip.AddrFrom16(gid)
}

// describePort sets the attributes of the port that programs query.
func (m *Machine) describePort(k *ioctltest.Kernel) {
	p := &k.Ports[0]
	p.MaxMtu, p.ActiveMtu = mtu4096, uint8(m.mtu)
	if m.lid != 0 {
		p.LinkLayer, p.Lid, p.SmLid, p.Flags = uint8(uverbs.LinkInfiniBand), m.lid, smLID, 0
	}
}
