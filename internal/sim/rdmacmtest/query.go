package rdmacmtest

import (
	"cmp"
	"encoding/binary"
	"net/netip"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

func query(m *message) unix.Errno {
	switch payload[uapi.RdmaUcmQuery](m).Option {
	case uapi.RDMA_USER_CM_QUERY_ADDR:
		resp := m.k.where(m.id)
		resp.SrcSize = putSockaddr(&resp.SrcAddr, m.id.src)
		resp.DstSize = putSockaddr(&resp.DstAddr, m.id.dst)
		if m.id.ib {
			resp.SrcSize = putSockaddrIB(&resp.SrcAddr, m.id, m.id.src)
			resp.DstSize = putSockaddrIB(&resp.DstAddr, m.id, m.id.dst)
		}
		return answerAddr(m, resp)
	case uapi.RDMA_USER_CM_QUERY_GID:
		resp := m.k.where(m.id)
		resp.SrcSize = putSockaddrIB(&resp.SrcAddr, m.id, m.k.gid(m.id, m.id.src))
		resp.DstSize = putSockaddrIB(&resp.DstAddr, m.id, m.k.gid(m.id, m.id.dst))
		return answerAddr(m, resp)
	case uapi.RDMA_USER_CM_QUERY_PATH:
		return queryPath(m)
	case uapi.RDMA_USER_CM_QUERY_IB_SERVICE:
		return queryService(m)
	}
	return unix.ENOSYS
}

func answerAddr(m *message, resp uapi.RdmaUcmQueryAddrResp) unix.Errno {
	if len(m.reply) < 272 { // without ibdev_index, as requested by older programs
		return unix.ENOSPC
	}
	reply(m, resp)
	return 0
}

// where returns the device of an id.
func (k *Kernel) where(i *id) (resp uapi.RdmaUcmQueryAddrResp) {
	if i.device {
		resp.NodeGuid, resp.PortNum, resp.IbdevIndex = i.machine.NodeGUID, 1, i.machine.DevIndex
	}
	return resp
}

func putSockaddrIB(b *[128]byte, i *id, a netip.AddrPort) uint16 {
	binary.NativeEndian.PutUint16(b[:], unix.AF_IB)
	if a.Addr().IsValid() {
		gid := a.Addr().As16()
		copy(b[8:], gid[:])
		binary.BigEndian.PutUint64(b[24:], uint64(i.ps)<<16|uint64(a.Port()))
	}
	return 48
}

func queryPath(m *message) unix.Errno {
	i := m.id
	if i.state == idle || i.state == bound || i.state == resolved || i.state == listening {
		reply(m, uapi.RdmaUcmQueryPathResp{})
		return 0
	}
	reply(m, uapi.RdmaUcmQueryPathResp{NumPaths: 1})
	if len(m.reply) < 8+72 {
		return 0
	}
	r := m.reply[8:]
	binary.NativeEndian.PutUint32(r, uapi.IB_PATH_GMP|uapi.IB_PATH_PRIMARY|uapi.IB_PATH_BIDIRECTIONAL)
	path := r[8:72]
	dst, src := m.k.gid(i, i.dst).Addr().As16(), m.k.gid(i, i.src).Addr().As16()
	binary.BigEndian.PutUint64(path, uint64(i.ps)<<16|uint64(i.dst.Port()))
	copy(path[8:], dst[:])
	copy(path[24:], src[:])
	if i.machine.infiniBand() {
		binary.BigEndian.PutUint16(path[52:], uint16(i.tos)<<4) // the class of service
		binary.BigEndian.PutUint16(path[40:], m.k.machineAt(i).LID)
		binary.BigEndian.PutUint16(path[42:], i.machine.LID)
	} else {
		path[47], path[48] = 64, i.tos // hop limit and traffic class
	}
	path[49] = 0x80                                 // reversible
	binary.BigEndian.PutUint16(path[50:], 0xffff)   // P_Key
	path[54] = 2<<6 | byte(m.k.pathMTU(i))          // exactly
	path[55], path[56] = 2<<6|3, 2<<6|packetLifeExp // rate 10 Gb/s
	return 0
}

const packetLifeExp = 18

// pathMTU returns the MTU of the path of an id: that of the request if a peer has sent one. A subnet manager knows the
// ports of both ends, an Ethernet only that of the sender.
func (k *Kernel) pathMTU(i *id) uint32 {
	if i.mtu != 0 {
		return i.mtu
	}
	mtu := cmp.Or(i.machine.MTU, k.PathMTU)
	if i.machine.infiniBand() {
		mtu = min(mtu, cmp.Or(k.machineAt(i).MTU, k.PathMTU))
	}
	return mtu
}

// Bits of enum ib_qp_attr_mask.
const (
	maskState    = 1 << 0
	maskAccess   = 1 << 3
	maskPKey     = 1 << 4
	maskPort     = 1 << 5
	maskQKey     = 1 << 6
	maskAV       = 1 << 7
	maskMTU      = 1 << 8
	maskTimeout  = 1 << 9
	maskRetry    = 1 << 10
	maskRNR      = 1 << 11
	maskRQPSN    = 1 << 12
	maskMaxRd    = 1 << 13
	maskMinRNR   = 1 << 15
	maskSQPSN    = 1 << 16
	maskMaxDest  = 1 << 17
	maskDestQPN  = 1 << 20
	stateInit    = 1
	stateRTR     = 2
	stateRTS     = 3
	stateErr     = 6
	remoteWrite  = 1 << 1
	remoteRead   = 1 << 2
	remoteAtomic = 1 << 3
	remoteFlush  = 3 << 8 // global and persistent, from Linux 6.2 on
)

func initQPAttr(m *message) unix.Errno {
	req, i := payload[uapi.RdmaUcmInitQpAttr](m), m.id
	if req.QpState > stateErr || !i.device {
		return unix.EINVAL
	}
	a := uapi.IbUverbsQpAttr{QpState: req.QpState}
	before := i.state == bound || i.state == resolved || i.state == routed
	var errno unix.Errno
	switch {
	case i.datagram:
		a.PortNum, a.Qkey, a.QpAttrMask = 1, i.qkey(), maskState|maskPKey|maskPort|maskQKey
	case before:
		a.PortNum, a.QpAttrMask = 1, maskState|maskPKey|maskPort|maskAccess
	default:
		errno = m.k.connected(i, &a)
	}
	if errno != 0 {
		return errno
	}
	if a.QpState == stateRTR {
		a.RqPsn = i.psn
	}
	if a.QpAttrMask&maskTimeout != 0 && i.timeout != 0 {
		a.Timeout = i.timeout
	}
	reply(m, a)
	return 0
}

// connected sets the attributes of the QP for the connection.
func (k *Kernel) connected(i *id, a *uapi.IbUverbsQpAttr) unix.Errno {
	known := i.state == requested || i.state == accepted || i.state == answered || i.state == established
	switch {
	case a.QpState == stateInit && (known || i.state == connecting):
		a.PortNum, a.QpAccessFlags = 1, remoteWrite
		if i.responder > 0 || i.state == connecting && i.param.ResponderResources > 0 {
			a.QpAccessFlags |= remoteRead | remoteAtomic | remoteFlush
		}
		a.QpAttrMask = maskState | maskAccess | maskPKey | maskPort
	case a.QpState == stateRTR && known:
		a.AhAttr, a.PathMtu, a.DestQpNum = k.ah(i), k.pathMTU(i), i.remoteQPN
		a.QpAttrMask = maskState | maskAV | maskMTU | maskDestQPN | maskRQPSN
		if i.qpType != uapi.IB_UVERBS_QPT_XRC_INI {
			a.MaxDestRdAtomic = i.responder
			a.QpAttrMask |= maskMaxDest | maskMinRNR
		}
	case a.QpState == stateRTS && known:
		a.SqPsn, a.Timeout = i.remotePSN, k.Timeouts.Ack
		a.QpAttrMask = maskState | maskSQPSN | maskTimeout
		if i.qpType != uapi.IB_UVERBS_QPT_XRC_TGT {
			a.RetryCnt, a.RnrRetry, a.MaxRdAtomic = i.retry, i.rnr, i.initiator
			a.QpAttrMask |= maskRetry | maskRNR | maskMaxRd
		}
	default:
		return unix.EINVAL
	}
	return 0
}

func resolveService(m *message) unix.Errno {
	switch {
	case m.k.NoServices, !m.id.device, m.id.state != bound, m.id.services:
		return unix.EINVAL
	case !m.k.Services:
		return unix.EOPNOTSUPP
	}
	m.id.services = true
	m.k.post(m.id, rdmacm.EventAddrinfoResolved, 0)
	return 0
}

func queryService(m *message) unix.Errno {
	switch {
	case m.k.NoServices:
		return unix.ENOSYS
	case !m.id.services:
		return unix.ENODATA
	}
	reply(m, uapi.RdmaUcmQueryIbServiceResp{NumServiceRecs: 1})
	return 0
}
