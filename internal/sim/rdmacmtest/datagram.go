package rdmacmtest

import (
	"encoding/binary"
	"net/netip"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// errNotSupported is the kernel's ENOTSUPP, which is not part of the ABI.
const errNotSupported = unix.Errno(524)

// A group is a membership.
type group struct {
	n        uint32
	id       *id
	reported uint32
}

// acceptDatagram replies to a request for the QP number.
func (k *Kernel) acceptDatagram(i *id, req *uapi.RdmaUcmAccept) unix.Errno {
	if req.ConnParam.PrivateDataLen > roomSREP {
		k.unreachable(i.peer, sidrReject, nil)
		i.state = over
		return unix.EINVAL
	}
	a := i.peer
	i.state, i.param = established, req.ConnParam
	k.carry(k.message(SIDRResp, i), func(m *Message) {
		if a.state != connecting {
			return
		}
		a.state = established
		p := uapi.RdmaUcmUdParam{QpNum: m.QPN, Qkey: udpQKey, AhAttr: k.ah(a), PrivateDataLen: roomSREP}
		copy(p.PrivateData[:], m.PrivateData)
		k.postUD(a, rdmacm.EventEstablished, 0, p)
	})
	return 0
}

// unreachable replies to a request for the QP number that it is not available,
// with private data.
func (k *Kernel) unreachable(i *id, status int32, data []byte) {
	if i == nil {
		return
	}
	k.carry(&Message{Kind: SIDRResp, From: k.peerMachine(i), To: i.machine, Reason: uint8(status), PrivateData: data},
		func(m *Message) {
			if i.state != connecting {
				return
			}
			i.state = over
			p := uapi.RdmaUcmUdParam{PrivateDataLen: roomSREP}
			copy(p.PrivateData[:], m.PrivateData)
			k.postUD(i, rdmacm.EventUnreachable, int32(m.Reason), p)
		})
}

// ah returns the address vector of the peer of an id.
func (k *Kernel) ah(i *id) uapi.IbUverbsAhAttr {
	if i.machine.infiniBand() {
		return uapi.IbUverbsAhAttr{PortNum: 1, Dlid: k.machineAt(i).LID}
	}
	return i.globalAH(i.dst.Addr())
}

// globalAH returns an address vector with a GRH.
func (i *id) globalAH(peer netip.Addr) uapi.IbUverbsAhAttr {
	index, ok := i.machine.SGIDs[i.src.Addr().WithZone("")]
	if !ok {
		index = i.machine.SGIDIndex
	}
	return uapi.IbUverbsAhAttr{IsGlobal: 1, PortNum: 1, Grh: uapi.IbUverbsGlobalRoute{Dgid: peer.As16(), SgidIndex: index,
		HopLimit: 64, TrafficClass: i.tos}}
}

func join(m *message) unix.Errno {
	req, k, i := payload[uapi.RdmaUcmJoinMcast](m), m.k, m.id
	a, errno := sockaddr(req.Addr, req.AddrSize)
	if errno != 0 || req.JoinFlags > uapi.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER {
		return unix.EINVAL
	}
	if !i.device || !i.datagram || i.state != bound && i.state != resolved || a.Addr().IsUnspecified() {
		return unix.EINVAL
	}
	if a.Addr().Is6() && k.NoGroups6 {
		return errNotSupported // over RoCE v2
	}
	g := &group{n: k.nextGroup, id: i} // their numbers are separate, from 0
	k.nextGroup++
	k.groups[g.n] = g
	ud := uapi.RdmaUcmUdParam{QpNum: 0xffffff, Qkey: i.qkey(), AhAttr: k.groupAH(i, a.Addr())}
	e := &event{id: i, group: g, resp: uapi.RdmaUcmEventResp{Uid: req.Uid, Id: g.n, Event: rdmacm.EventMulticastJoin}}
	copy(e.resp.Param[:], bytesOf(&ud))
	reply(m, uapi.RdmaUcmCreateIdResp{Id: g.n})
	k.queue(e)
	return 0
}

func leave(m *message) unix.Errno {
	k := m.k
	g := k.groups[payload[uapi.RdmaUcmDestroyId](m).Id]
	switch {
	case g == nil:
		return unix.ENOENT
	case g.id.file != m.file:
		return unix.EINVAL
	}
	delete(k.groups, g.n)
	k.dropGroup(g)
	reply(m, uapi.RdmaUcmDestroyIdResp{EventsReported: g.reported})
	return 0
}

func (k *Kernel) dropGroup(g *group) {
	var rest []*event
	for _, e := range g.id.file.events {
		if e.group != g {
			rest = append(rest, e)
		}
	}
	g.id.file.events = rest
}

// FailMulticast ends a membership with an error, as the loss of the network
// does.
func (k *Kernel) FailMulticast(mc uint32, uid uint64, status int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[mc]
	if g == nil {
		k.violation("FailMulticast of membership %d, which does not exist", mc)
		return
	}
	k.queue(&event{id: g.id, group: g, resp: uapi.RdmaUcmEventResp{Uid: uid, Id: g.n, Event: rdmacm.EventMulticastError,
		Status: uint32(status)}})
}

func setOption(m *message) unix.Errno {
	req, k, i := payload[uapi.RdmaUcmSetOption](m), m.k, m.id
	value := m.call.Memory(req.Optval, int(req.Optlen))
	if value == nil {
		m.violation("%s: the value has no memory", m.call)
		return unix.EFAULT
	}
	if req.Level == uapi.RDMA_OPTION_IB && req.Optname == uapi.RDMA_OPTION_IB_PATH {
		return k.setPath(i, value)
	}
	sizes := map[uint32]int{uapi.RDMA_OPTION_ID_TOS: 1, uapi.RDMA_OPTION_ID_REUSEADDR: 4, uapi.RDMA_OPTION_ID_AFONLY: 4,
		uapi.RDMA_OPTION_ID_ACK_TIMEOUT: 1}
	size, known := sizes[req.Optname]
	switch {
	case req.Level != uapi.RDMA_OPTION_ID, !known:
		return unix.ENOSYS
	case len(value) != size:
		return unix.EINVAL
	}
	switch req.Optname {
	case uapi.RDMA_OPTION_ID_REUSEADDR:
		on := binary.NativeEndian.Uint32(value) != 0
		if i.state != idle && (!on || i.state == listening) {
			return unix.EINVAL
		}
		i.reuse = on
	case uapi.RDMA_OPTION_ID_AFONLY:
		if i.state != idle && i.state != bound {
			return unix.EINVAL
		}
		if i.afOnly = afBoth; binary.NativeEndian.Uint32(value) != 0 {
			i.afOnly = afOne
		}
	case uapi.RDMA_OPTION_ID_TOS:
		i.tos = value[0]
	case uapi.RDMA_OPTION_ID_ACK_TIMEOUT:
		if i.datagram {
			return unix.EINVAL
		}
		i.timeout = value[0]
	}
	return 0
}

// setPath sets the path instead of resolving the route.
func (k *Kernel) setPath(i *id, value []byte) unix.Errno {
	const want = uapi.IB_PATH_GMP | uapi.IB_PATH_PRIMARY | uapi.IB_PATH_BIDIRECTIONAL
	if len(value)%72 != 0 || i.state != resolved {
		return unix.EINVAL
	}
	for ; len(value) > 0; value = value[72:] {
		if binary.NativeEndian.Uint32(value) == want {
			i.state = routed
			k.post(i, rdmacm.EventRouteResolved, 0)
			return 0
		}
	}
	return unix.EINVAL
}
