package rdmacmtest

import (
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Maximum length of private data in the messages, without the connection
// manager's header.
const (
	roomREQ  = 92 - 36
	roomREP  = 196
	roomREJ  = 148
	roomSREQ = 216 - 36
	roomSREP = 136
)

const (
	rejectTimeout          = 4
	rejectInvalidServiceID = 8
	sidrUnsupported        = 1
	sidrReject             = 2
	udpQKey                = 0x01234567
)

func connect(m *message) unix.Errno {
	req, k, i := payload[uapi.RdmaUcmConnect](m), m.k, m.id
	room := uint8(roomREQ)
	if i.datagram {
		room = roomSREQ
	}
	if req.ConnParam.Valid == 0 || !i.device || i.state != routed || req.ConnParam.PrivateDataLen > room {
		return unix.EINVAL
	}
	i.param, i.ece, i.state = req.ConnParam, req.Ece, connecting
	k.send(i)
	return 0
}

// send sends the request of an id.
func (k *Kernel) send(i *id) {
	k.machineAt(i).arrive("req")
	l := k.listener(i)
	switch {
	case l == nil && i.datagram:
		k.unreachable(i, sidrUnsupported, nil)
	case l == nil:
		k.rejected(i, rejectInvalidServiceID, nil)
	case l.backlog == 0:
		k.drop(l, i)
	default:
		k.request(l, i)
	}
}

// Times of the kernel, which are some seconds there.
const (
	repetition = 500 * time.Millisecond // until a request without a reply is sent again
	timewait   = 300 * time.Millisecond // until the QP of an ended connection can be used again
)

// drop drops a request because the backlog of its listener is full. It is sent
// again: when there is room, or in real time.
func (k *Kernel) drop(l, i *id) {
	if !k.RealTime {
		l.waiting = append(l.waiting, i)
		return
	}
	k.after(repetition, func() {
		if i.state == connecting && k.ids[i.n] == i {
			k.send(i)
		}
	})
}

// listener returns the listener at the address to which i connects.
func (k *Kernel) listener(i *id) *id {
	for _, l := range k.ids {
		if l.state == listening && !l.dead && l.machine == k.machineAt(i) && l.ps == i.ps &&
			l.src.Port() == i.dst.Port() && l.hears(i.dst.Addr()) {
			return l
		}
	}
	return nil
}

// hears reports whether a listener receives requests to an address.
func (i *id) hears(dst netip.Addr) bool {
	own := i.src.Addr()
	if !anyAddr(own) {
		return own.WithZone("") == dst.WithZone("")
	}
	return own.Is4() == dst.Is4() || own.Is6() && !i.oneFamily(own)
}

// machineAt returns the machine that i connects to.
func (k *Kernel) machineAt(i *id) *Machine {
	if m := k.machineOf(i.dst.Addr()); m != nil {
		return m
	}
	return i.machine // a loopback address
}

// receiverOf returns the type of the QP that a request from a QP of a type is for.
func receiverOf(sender uint8) uint8 {
	if sender == uapi.IB_UVERBS_QPT_XRC_INI {
		return uapi.IB_UVERBS_QPT_XRC_TGT
	}
	return sender
}

// withoutZone removes the zone, which connection requests do not have.
func withoutZone(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}

// request creates a child of the listener for the active side i.
func (k *Kernel) request(l, i *id) {
	if i.state != connecting {
		return
	}
	p := i.param
	child := &id{
		file: l.file, machine: l.machine, ps: l.ps, datagram: l.datagram, state: requested, child: true, device: true,
		src: withoutZone(i.dst), dst: withoutZone(i.src), peer: i, tos: i.tos,
		responder: p.InitiatorDepth, initiator: p.ResponderResources, retry: min(p.RetryCount, 7),
		rnr: min(p.RnrRetryCount, 7), qpType: receiverOf(i.qpType),
	}
	i.peer = child
	k.add(child)
	l.backlog--
	e := &event{id: l, child: child,
		resp: uapi.RdmaUcmEventResp{Uid: l.uid, Id: child.n, Event: rdmacm.EventConnectRequest, Ece: i.ece}}
	if l.datagram {
		ud := uapi.RdmaUcmUdParam{PrivateData: p.PrivateData, PrivateDataLen: roomSREQ}
		copy(e.resp.Param[:], bytesOf(&ud))
	} else {
		p.ResponderResources, p.InitiatorDepth = p.InitiatorDepth, p.ResponderResources
		p.RetryCount, p.RnrRetryCount = child.retry, child.rnr
		p.PrivateDataLen, p.Valid, p.Qkey = roomREQ, 0, 0
		copy(e.resp.Param[:], bytesOf(&p))
	}
	k.queue(e)
}

func accept(m *message) unix.Errno {
	req, k, i := payload[uapi.RdmaUcmAccept](m), m.k, m.id
	valid := req.ConnParam.Valid != 0
	var errno unix.Errno
	switch {
	case i.state == requested && i.datagram:
		errno = k.acceptDatagram(i, req)
	case i.state == requested && valid:
		errno = k.acceptRequest(i, req)
	case i.state == answered && !valid:
		i.state, i.peer.state = established, established
		k.post(i.peer, rdmacm.EventEstablished, 0)
	default:
		return unix.EINVAL
	}
	if errno == 0 && valid {
		if i.uid = req.Uid; req.Uid == 0 {
			k.violation("%s: with uid 0 an id has no events", m.call)
		}
	}
	return errno
}

// acceptRequest sends the reply. If the kernel cannot send it, it rejects the
// request.
func (k *Kernel) acceptRequest(i *id, req *uapi.RdmaUcmAccept) unix.Errno {
	p := req.ConnParam
	if p.PrivateDataLen > roomREP {
		k.rejected(i.peer, rdmacm.RejectConsumer, nil)
		i.state = over
		return unix.EINVAL
	}
	i.param, i.ece, i.state = p, req.Ece, accepted
	i.responder, i.initiator = p.ResponderResources, p.InitiatorDepth
	a := i.peer
	a.machine.arrive("rep")
	a.state = answered
	a.responder, a.initiator, a.retry, a.rnr = p.InitiatorDepth, p.ResponderResources, min(a.param.RetryCount, 7),
		min(p.RnrRetryCount, 7)
	p.ResponderResources, p.InitiatorDepth = a.responder, a.initiator
	p.RnrRetryCount, p.RetryCount, p.Qkey = a.rnr, 0, 0
	k.postConn(a, rdmacm.EventConnectResponse, 0, p, roomREP, req.Ece)
	return 0
}

func reject(m *message) unix.Errno {
	req, k, i := payload[uapi.RdmaUcmReject](m), m.k, m.id
	reason := req.Reason
	if reason == 0 {
		reason = rdmacm.RejectConsumer
	}
	if reason != rdmacm.RejectConsumer && reason != rdmacm.RejectVendorOption || !i.device {
		return unix.EINVAL
	}
	switch {
	case i.datagram && i.state == requested && req.PrivateDataLen <= roomSREP:
		k.unreachable(i.peer, sidrReject, req.PrivateData[:req.PrivateDataLen])
	case !i.datagram && (i.state == requested || i.state == accepted || i.state == answered) &&
		req.PrivateDataLen <= roomREJ:
		k.rejected(i.peer, reason, req.PrivateData[:req.PrivateDataLen])
	default:
		return unix.EINVAL
	}
	i.state = over
	return 0
}

// rejected notifies an id that its request or its reply was rejected.
func (k *Kernel) rejected(i *id, reason uint8, data []byte) {
	if i == nil || i.state == over {
		return
	}
	i.state = over
	i.machine.arrive("rej")
	var p uapi.RdmaUcmConnParam
	copy(p.PrivateData[:], data)
	k.postConn(i, rdmacm.EventRejected, int32(reason), p, roomREJ, uapi.RdmaUcmEce{})
}

// abandon ends a request without a reply.
func (k *Kernel) abandon(i *id) {
	if i.peer != nil && !i.datagram {
		k.rejected(i.peer, rejectTimeout, nil)
	}
}

func disconnect(m *message) unix.Errno {
	k, i := m.k, m.id
	if !i.device || i.peer == nil {
		return unix.EINVAL
	}
	switch i.state {
	case established:
		if i.datagram {
			return 0 // not connected; the kernel returns no error
		}
		k.disconnectedBy(i)
		i.state = disconnecting
	case disconnected:
		k.replyToDisconnect(i)
	}
	return 0 // in other states, too
}

// disconnectedBy notifies the peer of i, which must reply.
func (k *Kernel) disconnectedBy(i *id) {
	if p := i.peer; p.state == established {
		p.state = disconnected
		k.post(p, rdmacm.EventDisconnected, 0)
	}
}

// replyToDisconnect ends the connection on both sides.
func (k *Kernel) replyToDisconnect(i *id) {
	i.state = over
	k.after(timewait, func() { k.post(i, rdmacm.EventTimewaitExit, 0) })
	if p := i.peer; p.state == disconnecting {
		p.state = over
		k.post(p, rdmacm.EventDisconnected, 0)
		k.after(timewait, func() { k.post(p, rdmacm.EventTimewaitExit, 0) })
	}
}

// Expire ends an id's wait for its peer: a request ends in UNREACHABLE, a
// disconnection without a reply in DISCONNECTED.
func (k *Kernel) Expire(n uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.ids[n]
	switch {
	case i == nil:
		k.violation("Expire of id %d, which does not exist", n)
	case i.state == connecting, i.state == accepted:
		i.state = over
		if i.datagram {
			k.postUD(i, rdmacm.EventUnreachable, -int32(unix.ETIMEDOUT), uapi.RdmaUcmUdParam{})
			return
		}
		k.post(i, rdmacm.EventUnreachable, -int32(unix.ETIMEDOUT))
	case i.state == disconnecting:
		i.state = over
		k.post(i, rdmacm.EventDisconnected, -int32(unix.ETIMEDOUT))
		k.post(i, rdmacm.EventTimewaitExit, 0)
	default:
		k.violation("Expire of id %d, which does not wait for its peer: %s", n, i.state)
	}
}

func notify(m *message) unix.Errno {
	const commEst = 4
	i := m.id
	if !i.device || i.peer == nil || payload[uapi.RdmaUcmNotify](m).Event != commEst {
		return unix.EINVAL
	}
	switch i.state {
	case accepted:
		i.state = established
		m.k.post(i, rdmacm.EventEstablished, 0)
		return 0
	case established:
		return unix.EISCONN
	}
	return unix.EINVAL
}

func writeEvent(m *message) unix.Errno {
	req := payload[uapi.RdmaUcmWriteCmEvent](m)
	if req.Event != rdmacm.EventUser && req.Event != rdmacm.EventInternal || req.Reserved != 0 {
		return unix.EINVAL
	}
	e := &event{id: m.id, resp: uapi.RdmaUcmEventResp{Uid: m.id.uid, Id: m.id.n, Event: req.Event, Status: req.Status}}
	copy(e.resp.Param[:8], req.Param[:8])
	m.k.queue(e)
	return 0
}
