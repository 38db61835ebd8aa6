package cm

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// Connect requests a connection from the peer or, for datagrams, its QP number and
// Q_Key: rdma_connect(3). EventEstablished, EventRejected, EventUnreachable or
// EventConnectError follows. If the id has no QP, p has the QP's number, and
// EventConnectResponse follows instead of EventEstablished. Connect returns [ErrNoQP]
// if the id has no QP and p is nil, [uverbs.ErrNotSupported] if it has no QP on iWARP, [ErrPrivateData],
// [uverbs.ErrInvalid] before the route is resolved and for numbers out of range, [uverbs.ErrClosed] after Close, or
// what the kernel says. On iWARP, the kernel connects by TCP before Connect returns, which Close ends, and Connect also
// returns [ErrRejected].
func (id *ID) Connect(p *ConnParam) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.checkParam("connect", &p, connectLimits); err != nil {
		return err
	}
	id.responderResources = requestDepth(p.ResponderResources, MaxRespRes, id.dev.attr.MaxQPRdAtom)
	id.initiatorDepth = requestDepth(p.InitiatorDepth, MaxInitDepth, id.dev.attr.MaxQPInitRdAtom)
	req := &uapi.RdmaUcmConnect{
		Id:  id.kernelID,
		Ece: uapi.RdmaUcmEce{VendorId: id.ece.local.VendorID, AttrMod: id.ece.local.Options},
	}
	id.encodeParam(&req.ConnParam, p)
	if err := id.sendRequest(req); err != nil {
		return id.explainConnect("connect", err, p, connectLimits)
	}
	id.life.enter(phaseConnecting)
	return nil
}

// sendRequest issues CONNECT. On iWARP, Close ends it, as does the context of [SyncID.Connect]. The caller holds id.mu.
func (id *ID) sendRequest(req *uapi.RdmaUcmConnect) error {
	if id.dev.rnic {
		return id.node.file.ConnectUntil(&id.connecting, req)
	}
	return id.node.file.Connect(req)
}

// Accept accepts a connection request: rdma_accept(3). It moves the QP to RTS.
// EventEstablished follows when the peer has confirmed the connection. For UD no
// event follows. Accept returns [ErrDisconnected] if the peer has withdrawn its
// request or no longer exists, and [ErrNoQP] if the id has no QP and p is nil, also
// for UD. Otherwise the errors are those of [ID.Connect] and [uverbs.QP.Modify].
func (id *ID) Accept(p *ConnParam) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.checkParam("accept", &p, acceptLimits); err != nil {
		return err
	}
	id.responderResources = acceptDepth(p.ResponderResources, MaxRespRes, id.responderResources, id.dev.attr.MaxQPRdAtom)
	id.initiatorDepth = acceptDepth(p.InitiatorDepth, MaxInitDepth, id.initiatorDepth, id.dev.attr.MaxQPInitRdAtom)
	if id.qpType != uverbs.UD {
		if err := id.toRTR(id.responderResources); err != nil {
			return err
		}
		if err := id.toRTS(id.initiatorDepth); err != nil {
			return err
		}
	}
	req := &uapi.RdmaUcmAccept{Uid: id.uid, Id: id.kernelID}
	if id.remoteECE.VendorID != 0 {
		req.Ece = uapi.RdmaUcmEce{VendorId: id.remoteECE.VendorID, AttrMod: id.ece.local.Options}
	}
	id.encodeParam(&req.ConnParam, p)
	if err := id.node.file.Accept(req); err != nil {
		return errors.Join(id.acceptError(err, p),
			id.modifyQP(toErr, uverbs.MaskState))
	}
	id.life.enter(phaseConnecting)
	return nil
}

func (id *ID) acceptError(err error, p *ConnParam) error {
	err = id.explainConnect("accept", err, p, acceptLimits)
	if id.fromRequest {
		return id.withdrawnError("accept", err)
	}
	return err
}

// checkParam checks whether the id can connect or accept with *p and fills in the
// defaults. The caller holds id.mu.
func (id *ID) checkParam(op string, p **ConnParam, l dataLimits) error {
	datagrams := id.qpType == uverbs.UD
	sendsQPN := !datagrams || op == "accept"
	switch {
	case id.isClosed():
		return closed(op, id.describe())
	case id.dev == nil:
		return invalid(op, id.describe(), "the id is not bound to a device: resolve the peer's address first")
	case *p == nil && id.qp.Load() == nil && sendsQPN:
		return &Error{Op: op, Object: id.describe(), Kind: ErrNoQP, Errno: unix.EINVAL,
			Detail: "the id has no QP: call CreateQP first, or name another QP in ConnParam"}
	}
	if id.dev.rnic && id.qp.Load() == nil && sendsQPN {
		return &Error{Op: op, Object: id.describe(), Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "on iWARP, the kernel connects the QP of the id: call CreateQP"}
	}
	*p = (*p).complete()
	if n := len(id.connectData) + len((*p).PrivateData); n > maxPrivateData || id.dev.rnic && n > maxRNICData {
		return id.tooMuchData(op, n, id.dataLimit(l))
	}
	if datagrams {
		return nil // the other parameters do not apply to datagrams
	}
	return id.checkDepths(op, *p)
}

func (id *ID) checkDepths(op string, p *ConnParam) error {
	for _, n := range []struct {
		name              string
		value, all, limit int
	}{
		{"ResponderResources", int(p.ResponderResources), int(MaxRespRes), id.dev.attr.MaxQPRdAtom},
		{"InitiatorDepth", int(p.InitiatorDepth), int(MaxInitDepth), id.dev.attr.MaxQPInitRdAtom},
		{"RetryCount", int(p.RetryCount), 7, 7},
		{"RNRRetryCount", int(p.RNRRetryCount), 7, 7},
	} {
		if n.value > n.limit && n.value != n.all {
			return invalid(op, id.describe(), fmt.Sprintf("%s is %d: the maximum is %d", n.name, n.value, n.limit))
		}
	}
	return nil
}

// requestDepth returns the depth to request in Connect.
func requestDepth(asked, all uint8, device int) uint8 {
	if asked == all {
		return uint8(min(device, 0xff))
	}
	return asked
}

// acceptDepth returns the depth to send in Accept. The default is what the peer
// requested, up to the device's limit.
func acceptDepth(asked, all, peer uint8, device int) uint8 {
	if asked == all {
		return uint8(min(int(peer), device))
	}
	return asked
}

// encodeParam fills in the kernel's struct. The caller holds id.mu.
func (id *ID) encodeParam(d *uapi.RdmaUcmConnParam, p *ConnParam) {
	*d = uapi.RdmaUcmConnParam{QpNum: p.QPN, Qkey: p.QKey, Srq: b2u(p.SRQ), Valid: 1,
		ResponderResources: id.responderResources, InitiatorDepth: id.initiatorDepth,
		FlowControl: b2u(p.FlowControl), RetryCount: p.RetryCount, RnrRetryCount: p.RNRRetryCount}
	if qp := id.qp.Load(); qp != nil {
		d.QpNum, d.Srq = qp.QPN(), b2u(id.usesSRQ)
	}
	n := copy(d.PrivateData[:], id.connectData)
	d.PrivateDataLen = uint8(n + copy(d.PrivateData[n:], p.PrivateData))
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// dataLimits has the room for private data in a message, for connected and UD ids:
// IBA vol. 1, 12.6, minus what the IP header takes in a request.
type dataLimits struct{ connected, ud int }

var (
	connectLimits = dataLimits{56, 180}
	acceptLimits  = dataLimits{196, 136}
	rejectLimits  = dataLimits{148, 136}
)

// maxPrivateData is the room for private data in commands and events. On iWARP, four bytes of it are the kernel's,
// which counts both in one byte and does not refuse more.
const (
	maxPrivateData = 0xff
	maxRNICData    = maxPrivateData - 4
)

// ipHeader is the size of the header with IP addresses in a request.
const ipHeader = 36

// dataLimit returns the room for private data. The caller holds id.mu.
func (id *ID) dataLimit(l dataLimits) int {
	n := l.connected
	switch {
	case id.dev != nil && id.dev.rnic:
		return maxRNICData
	case id.qpType == uverbs.UD:
		n = l.ud
	}
	if l == connectLimits && !id.local.IsValid() { // an IBAddr
		n += ipHeader
	}
	return n
}

func (id *ID) tooMuchData(op string, n, limit int) error {
	return &Error{Op: op, Object: id.describe(), Kind: ErrPrivateData, Errno: unix.EINVAL,
		Detail: strconv.Itoa(n) + " bytes of private data: there is room for " + strconv.Itoa(limit)}
}

// explainConnect returns the error of a refused command. It checks the length of the
// private data only now because other transports may have other limits.
func (id *ID) explainConnect(op string, err error, p *ConnParam, l dataLimits) error {
	if errors.Is(err, unix.EINVAL) {
		if n, limit := len(id.connectData)+len(p.PrivateData), id.dataLimit(l); n > limit {
			return id.tooMuchData(op, n, limit)
		}
		return id.wrap(op, id.describe(), err,
			"the id is not in a state for it: connect follows ResolveRoute, accept a connection request")
	}
	if id.connecting.Ended() && errors.Is(err, unix.ECANCELED) { // by Close, or by a context, which is the error then
		return closed(op, id.describe())
	}
	if id.dev.rnic && op == "connect" {
		for _, errno := range []unix.Errno{unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE} {
			if errors.Is(err, errno) { // the command connects by TCP, which the peer has refused or ended
				return (&Event{Type: EventRejected, Status: -int(errno), subject: subject{peer: id.peer, local: id.local}}).Err()
			}
		}
	}
	return id.wrap(op, id.describe(), err, "")
}

// Reject rejects a connection request or the reply to one: rdma_reject(3). The peer
// receives privateData, at most 148 bytes, 136 for UD, 251 on iWARP. Close the id afterwards.
// Reject returns [ErrPrivateData] if privateData is longer, [uverbs.ErrInvalid] if
// there is nothing to reject, and [uverbs.ErrClosed] after Close.
func (id *ID) Reject(privateData []byte) error { return id.reject(privateData, 0) }

// RejectECE rejects because of the peer's vendor options: rdma_reject_ece(3). The
// errors are those of [ID.Reject].
func (id *ID) RejectECE(privateData []byte) error {
	return id.reject(privateData, uint8(RejectVendorOption))
}

func (id *ID) reject(data []byte, reason uint8) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	const op = "reject"
	if id.isClosed() {
		return closed(op, id.describe())
	}
	limit := id.dataLimit(rejectLimits)
	if len(data) > maxPrivateData || len(data) > limit && limit == maxRNICData {
		return id.tooMuchData(op, len(data), limit)
	}
	err := id.node.file.Reject(id.kernelID, reason, data)
	if errors.Is(err, unix.EINVAL) && len(data) > limit {
		return id.tooMuchData(op, len(data), limit)
	}
	return id.wrap(op, id.describe(), err,
		"there is no request to reject: it was accepted or rejected, or the peer has withdrawn it")
}

// refuse rejects a connection request with the reason that err has for the peer. It does
// nothing if err has none or the peer has withdrawn its request.
func (id *ID) refuse(err error) error {
	data := refusalOf(err)
	if data == nil {
		return nil
	}
	if err := id.Reject(data); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// Disconnect ends the connection: rdma_disconnect(3). It moves the QP to state ERR,
// where the posted requests are flushed. Both sides receive EventDisconnected.
// Disconnect returns [uverbs.ErrInvalid] for an id without a connection, such as a UD
// id, [uverbs.ErrClosed] after Close, or what the kernel says to either step.
func (id *ID) Disconnect() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	const op = "disconnect"
	switch {
	case id.isClosed():
		return closed(op, id.describe())
	case id.dev == nil:
		return invalid(op, id.describe(), "the id is not connected")
	case id.qpType == uverbs.UD:
		return invalid(op, id.describe(), "datagrams have no connection: close the id")
	}
	a := toErr
	if id.dev.rnic {
		a.State = uverbs.StateSQD // iWARP ends its streams in order
	}
	// Change the phase first, so that the error of a flushed request has the cause.
	was := id.life.current()
	begun := id.life.enter(phaseDisconnecting)
	if err := id.modifyQP(a, uverbs.MaskState); err != nil {
		id.life.revert(phaseDisconnecting, was)
		return err
	}
	if begun {
		id.stopTraffic()
	}
	return id.wrap(op, id.describe(), id.node.file.Disconnect(id.kernelID), "the id is not connected")
}

// Establish completes a connection of an id without a QP, after EventConnectResponse:
// rdma_establish(3). The QP must be ready to receive. Establish returns
// [uverbs.ErrInvalid] for an id with a QP and if there is no reply to confirm, and
// [uverbs.ErrClosed] after Close.
func (id *ID) Establish() error {
	if id.qp.Load() != nil {
		return invalid("establish", id.name(), "the id has a QP: the library has done it")
	}
	return id.command("establish", explainEINVAL("there is no reply of a peer to confirm"), func() error {
		err := id.node.file.Accept(&uapi.RdmaUcmAccept{Id: id.kernelID})
		if err == nil {
			id.life.enter(phaseEstablished)
		}
		return err
	})
}

// Notify informs the connection manager of an event of the QP: rdma_notify(3).
// [uverbs.EventCommEst] means that data has arrived before the peer's last message
// of the handshake. Notify returns [uverbs.ErrInvalid] for an event that does not
// apply to the id, [uverbs.ErrClosed] after Close, or what the kernel says.
func (id *ID) Notify(t uverbs.EventType) error {
	return id.command("notify", explainEINVAL("the event does not apply to a connection, or the id has none"),
		func() error { return id.node.file.Notify(id.kernelID, uint32(t)) })
}
