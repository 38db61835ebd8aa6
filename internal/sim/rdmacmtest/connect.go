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
	roomREQ   = 92 - headerREQ
	headerREQ = 36 // not in requests by GID
	roomREP   = 196
	roomREJ   = 148
	roomSREQ  = 216 - 36
	roomSREP  = 136
)

const (
	rejectTimeout          = 4
	rejectInvalidCommID    = 6
	rejectInvalidServiceID = 8
	sidrUnsupported        = 1
	sidrReject             = 2
	udpQKey                = 0x01234567
)

func connect(m *message) unix.Errno {
	req, k, i := payload[uapi.RdmaUcmConnect](m), m.k, m.id
	room := i.roomREQ()
	if i.datagram {
		room = roomSREQ
	}
	if req.ConnParam.Valid == 0 || !i.device || i.state != routed || req.ConnParam.PrivateDataLen > room {
		return unix.EINVAL
	}
	i.param, i.ece, i.state = req.ConnParam, req.Ece, connecting
	kind := REQ
	if i.datagram {
		kind = SIDRReq
	}
	k.repeat(i, connecting, func() { k.carry(k.message(kind, i), func(m *Message) { k.requestArrives(i, m) }) })
	return 0
}

// requestArrives processes the request of i.
func (k *Kernel) requestArrives(i *id, m *Message) {
	if c := i.peer; c != nil && k.ids[c.n] == c && c.state != over {
		if c.state == accepted { // the reply was lost
			k.sendReply(c)
		}
		return
	}
	if i.state != connecting || i.dead {
		return
	}
	l := k.listener(i)
	switch {
	case l == nil && i.datagram:
		k.unreachable(i, sidrUnsupported, nil)
	case l == nil:
		k.rejected(i, rejectInvalidServiceID, nil)
	case l.backlog == 0 && !k.RealTime:
		l.waiting = append(l.waiting, waiting{i, m})
	case l.backlog > 0:
		k.request(l, i, m)
	}
}

// timewait is the time until the QP of an ended connection can be used again: some seconds in the
// kernel.
const timewait = 300 * time.Millisecond

// listener returns the listener at the address to which i connects.
func (k *Kernel) listener(i *id) *id {
	for _, l := range k.ids {
		if l.state == listening && !l.dead && l.machine.host() == k.machineAt(i).host() && l.ps == i.ps &&
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
func (k *Kernel) request(l, i *id, m *Message) {
	if i.state != connecting {
		return
	}
	child := &id{
		file: l.file, machine: k.machineAt(i), ps: l.ps, datagram: l.datagram, state: requested, child: true, device: true,
		ib:  i.ib,
		src: withoutZone(i.dst), dst: withoutZone(i.src), peer: i, tos: i.tos, remoteQPN: m.QPN, remotePSN: m.PSN,
		responder: m.InitiatorDepth, initiator: m.ResponderResources, retry: m.RetryCount, rnr: m.RNRRetryCount,
		qpType: receiverOf(i.qpType), mtu: k.pathMTU(i),
	}
	i.peer = child
	k.add(child)
	l.backlog--
	e := &event{id: l, child: child,
		resp: uapi.RdmaUcmEventResp{Uid: l.uid, Id: child.n, Event: rdmacm.EventConnectRequest, Ece: i.ece}}
	if l.datagram {
		ud := uapi.RdmaUcmUdParam{PrivateDataLen: roomSREQ}
		copy(ud.PrivateData[:], m.PrivateData)
		copy(e.resp.Param[:], bytesOf(&ud))
	} else {
		p := m.param()
		p.FlowControl, p.PrivateDataLen = i.param.FlowControl, i.roomREQ()
		copy(e.resp.Param[:], bytesOf(&p))
		k.acknowledge(i)
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
		i.state = established
		k.sendReady(i)
	default:
		return unix.EINVAL
	}
	if errno == 0 && valid {
		if i.uid = req.Uid; req.Uid == 0 {
			m.violation("%s: with uid 0 an id has no events", m.call)
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
	k.repeat(i, accepted, func() { k.sendReply(i) })
	return 0
}

// sendReply sends the reply of a child.
func (k *Kernel) sendReply(i *id) {
	m := k.message(REP, i)
	m.RetryCount = 0
	k.carry(m, func(m *Message) { k.replyArrives(i, m) })
}

// replyArrives processes the reply of a child.
func (k *Kernel) replyArrives(i *id, m *Message) {
	switch a := i.peer; {
	case a.dead:
	case k.ids[a.n] != a || a.state == over:
		k.rejected(i, rejectInvalidCommID, nil)
	case a.state == established: // the last message was lost
		k.sendReady(a)
	case a.state == connecting:
		a.state, a.remoteQPN, a.remotePSN = answered, m.QPN, m.PSN
		a.responder, a.initiator, a.retry, a.rnr = m.InitiatorDepth, m.ResponderResources, min(a.param.RetryCount, 7),
			m.RNRRetryCount
		p := m.param()
		p.FlowControl = i.param.FlowControl
		k.postConn(a, rdmacm.EventConnectResponse, 0, p, roomREP, i.ece)
		k.acknowledge(i)
	}
}

// sendReady notifies the peer of i that the connection is established.
func (k *Kernel) sendReady(i *id) {
	k.carry(&Message{Kind: RTU, From: i.machine, To: k.peerMachine(i)}, func(*Message) {
		if p := i.peer; p.state == accepted {
			p.state = established
			k.post(p, rdmacm.EventEstablished, 0)
		}
	})
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
	if i == nil {
		return
	}
	k.carry(&Message{Kind: REJ, From: k.peerMachine(i), To: i.machine, Reason: reason, PrivateData: data},
		func(m *Message) {
			if i.state != connecting && i.state != answered && i.state != accepted && i.state != requested {
				return
			}
			i.state = over
			var p uapi.RdmaUcmConnParam
			copy(p.PrivateData[:], m.PrivateData)
			k.postConn(i, rdmacm.EventRejected, int32(m.Reason), p, roomREJ, uapi.RdmaUcmEce{})
		})
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
		i.state = disconnecting
		k.repeat(i, disconnecting, func() { k.disconnectPeer(i) })
	case disconnected:
		k.replyToDisconnect(i)
	}
	return 0 // in other states, too
}

// disconnectPeer notifies the peer of i, which must reply.
func (k *Kernel) disconnectPeer(i *id) {
	p := i.peer
	k.carry(&Message{Kind: DREQ, From: i.machine, To: k.peerMachine(i)}, func(*Message) {
		switch {
		case p.dead:
		case k.ids[p.n] != p || p.state == over: // the reply was lost, or there was none
			k.disconnected(p, i)
		case p.state == established, p.state == accepted, p.state == disconnecting:
			p.state = disconnected
			k.post(p, rdmacm.EventDisconnected, 0)
		}
	})
}

// replyToDisconnect ends the connection on both sides.
func (k *Kernel) replyToDisconnect(i *id) {
	i.state = over
	k.after(timewait, func() { k.post(i, rdmacm.EventTimewaitExit, 0) })
	k.disconnected(i, i.peer)
}

// disconnected sends the reply of i to p, which has disconnected.
func (k *Kernel) disconnected(i, p *id) {
	k.carry(&Message{Kind: DREP, From: i.machine, To: p.machine}, func(*Message) {
		if p.state == disconnecting {
			p.state = over
			k.post(p, rdmacm.EventDisconnected, 0)
			k.after(timewait, func() { k.post(p, rdmacm.EventTimewaitExit, 0) })
		}
	})
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
	case i.state == connecting, i.state == accepted, i.state == disconnecting:
		k.expire(i)
	default:
		k.violation("Expire of id %d, which does not wait for its peer: %s", n, i.state)
	}
}

func (k *Kernel) expire(i *id) {
	disconnects := i.state == disconnecting
	i.state = over
	switch {
	case disconnects:
		k.post(i, rdmacm.EventDisconnected, -int32(unix.ETIMEDOUT))
		k.after(timewait, func() { k.post(i, rdmacm.EventTimewaitExit, 0) })
	case i.datagram:
		k.postUD(i, rdmacm.EventUnreachable, -int32(unix.ETIMEDOUT), uapi.RdmaUcmUdParam{})
	default:
		k.post(i, rdmacm.EventUnreachable, -int32(unix.ETIMEDOUT))
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
