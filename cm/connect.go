package cm

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A ConnParam says how to connect, or to accept: struct rdma_conn_param. Nil in
// place of one stands for both maxima, 6 retries and 7 for RNR.
type ConnParam struct {
	// PrivateData goes to the peer with the request or the answer: at most 56
	// bytes to connect, 196 to accept; 180 and 136 for datagrams. Between
	// addresses of the InfiniBand family a request has room for 36 more. Linux makes
	// the first byte of those 0, and looks for the version of IP in the next: one of
	// 0x4_ or 0x6_ has the request rejected.
	PrivateData []byte

	// ResponderResources is how many READs and atomics of the peer are served
	// at a time, InitiatorDepth how many may be under way to it. The device
	// limits both.
	ResponderResources uint8
	InitiatorDepth     uint8

	FlowControl   bool
	RetryCount    uint8 // 0 to 7: how often a lost packet is sent again; rxe takes 7 for infinitely often. Nothing said is 0
	RNRRetryCount uint8 // 0 to 7: how often a send is tried that finds no receive; 7 for ever. Nothing said is 0

	// For an id without a QP of its own. For UD Accept they tell the peer
	// where to send.
	SRQ  bool
	QPN  uint32
	QKey uint32
}

// What ConnParam's fields hold for as much as the device does, and the peer
// asks for.
const (
	MaxRespRes   uint8 = 0xff
	MaxInitDepth uint8 = 0xff
)

// Not librdmacm's 7 retries: rxe takes them for infinitely many, and who sends
// to a peer that is gone would never hear of it.
var defaultConnParam = ConnParam{ResponderResources: MaxRespRes, InitiatorDepth: MaxInitDepth, RetryCount: 6, RNRRetryCount: 7}

// Connect asks the peer for a connection, or for where to send datagrams:
// rdma_connect(3). EventEstablished, EventRejected, EventUnreachable or
// EventConnectError follows. For an id without a QP, p names the QP, and
// EventConnectResponse comes in place of EventEstablished. The errors:
// [ErrNoQP] without a QP and without p, [ErrPrivateData], [uverbs.ErrInvalid]
// before the route is resolved and for numbers that cannot be,
// [uverbs.ErrClosed] after Close, or what the kernel says.
func (i *ID) Connect(p *ConnParam) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.checkParam("connect", &p, connectLimits); err != nil {
		return err
	}
	i.responderResources = limited(p.ResponderResources, MaxRespRes, i.dev.attr.MaxQPRdAtom)
	i.initiatorDepth = limited(p.InitiatorDepth, MaxInitDepth, i.dev.attr.MaxQPInitRdAtom)
	i.failed = false
	req := &uapi.RdmaUcmConnect{Id: i.kernel, Ece: uapi.RdmaUcmEce{VendorId: i.localECE.VendorID, AttrMod: i.localECE.Options}}
	i.encodeParam(&req.ConnParam, p)
	if err := i.node.file.Connect(req); err != nil {
		return i.explainConnect("connect", err, p, connectLimits)
	}
	return nil
}

// Accept takes up a connection request: rdma_accept(3). The QP moves to RTS on
// the way. EventEstablished follows when the peer has heard of it, but for UD,
// where the answer is all. [ErrDisconnected] when the peer has taken its
// request back, or is gone, and [ErrNoQP] for UD too; else the errors are those
// of [ID.Connect], and of [uverbs.QP.Modify].
func (i *ID) Accept(p *ConnParam) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.checkParam("accept", &p, acceptLimits); err != nil {
		return err
	}
	i.responderResources = agreed(p.ResponderResources, MaxRespRes, i.responderResources, i.dev.attr.MaxQPRdAtom)
	i.initiatorDepth = agreed(p.InitiatorDepth, MaxInitDepth, i.initiatorDepth, i.dev.attr.MaxQPInitRdAtom)
	if i.qpType != uverbs.UD {
		if err := i.toRTR(i.responderResources); err != nil {
			return err
		}
		if err := i.toRTS(i.initiatorDepth); err != nil {
			return err
		}
	}
	req := &uapi.RdmaUcmAccept{Uid: i.uid, Id: i.kernel}
	if i.remoteECE.VendorID != 0 {
		req.Ece = uapi.RdmaUcmEce{VendorId: i.remoteECE.VendorID, AttrMod: i.localECE.Options}
	}
	i.encodeParam(&req.ConnParam, p)
	if err := i.node.file.Accept(req); err != nil {
		return errors.Join(i.acceptError(err, p),
			i.modifyQP(toErr, uverbs.MaskState))
	}
	return nil
}

func (i *ID) acceptError(err error, p *ConnParam) error {
	err = i.explainConnect("accept", err, p, acceptLimits)
	if i.requested {
		return i.withdrawn("accept", err)
	}
	return err
}

// withdrawn is err, or what it means in the middle of a handshake: that the
// peer has gone away.
func (i *ID) withdrawn(op string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Errno != unix.EINVAL || e.Kind == ErrPrivateData {
		return err
	}
	return &Error{Op: op, Object: i.describe(), Kind: ErrDisconnected, Errno: unix.EINVAL,
		Detail: "there is no handshake to go on with: the peer has taken back what it said, or is gone, or was answered before"}
}

// checkParam sees to it that the id can be connected, and fills in the default.
// The caller holds i.mu.
func (i *ID) checkParam(op string, p **ConnParam, l dataLimits) error {
	datagrams := i.qpType == uverbs.UD
	tells := !datagrams || op == "accept" // the peer which QP it is
	switch {
	case i.closed:
		return closed(op, i.describe())
	case i.dev == nil:
		return invalid(op, i.describe(), "the id is not bound to a device: resolve the peer's address first")
	case *p == nil && i.qp.Load() == nil && tells:
		return &Error{Op: op, Object: i.describe(), Kind: ErrNoQP, Errno: unix.EINVAL, Detail: "the id has no QP: call CreateQP first, or name a QP of your own in ConnParam"}
	case *p == nil:
		*p = &defaultConnParam
	}
	if n := len(i.connectData) + len((*p).PrivateData); n > 0xff {
		return i.tooMuchData(op, n, i.dataLimit(l))
	}
	if datagrams {
		return nil // the rest means nothing to them
	}
	return i.checkDepths(op, *p)
}

func (i *ID) checkDepths(op string, p *ConnParam) error {
	for _, n := range []struct {
		name              string
		value, all, limit int
	}{
		{"ResponderResources", int(p.ResponderResources), int(MaxRespRes), i.dev.attr.MaxQPRdAtom},
		{"InitiatorDepth", int(p.InitiatorDepth), int(MaxInitDepth), i.dev.attr.MaxQPInitRdAtom},
		{"RetryCount", int(p.RetryCount), 7, 7},
		{"RNRRetryCount", int(p.RNRRetryCount), 7, 7},
	} {
		if n.value > n.limit && n.value != n.all {
			return invalid(op, i.describe(), fmt.Sprintf("%s is %d: at most %d can be", n.name, n.value, n.limit))
		}
	}
	return nil
}

// limited is a depth that connect asks for.
func limited(asked, all uint8, device int) uint8 {
	if asked == all {
		return uint8(min(device, 0xff))
	}
	return asked
}

// agreed is a depth that accept answers with: as much as the peer asks for
// where nothing else is said.
func agreed(asked, all, peer uint8, device int) uint8 {
	if asked == all {
		return uint8(min(int(peer), device))
	}
	return asked
}

// encodeParam fills in what the kernel wants to know. The caller holds i.mu.
func (i *ID) encodeParam(d *uapi.RdmaUcmConnParam, p *ConnParam) {
	*d = uapi.RdmaUcmConnParam{QpNum: p.QPN, Qkey: p.QKey, Srq: b2u(p.SRQ), Valid: 1,
		ResponderResources: i.responderResources, InitiatorDepth: i.initiatorDepth,
		FlowControl: b2u(p.FlowControl), RetryCount: p.RetryCount, RnrRetryCount: p.RNRRetryCount}
	if qp := i.qp.Load(); qp != nil {
		d.QpNum, d.Srq = qp.QPN(), b2u(i.usesSRQ)
	}
	n := copy(d.PrivateData[:], i.connectData)
	d.PrivateDataLen = uint8(n + copy(d.PrivateData[n:], p.PrivateData))
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// How much private data a message has room for, connected and UD: IBA vol. 1,
// 12.6, less what an IP address takes in a request.
type dataLimits struct{ connected, ud int }

var (
	connectLimits = dataLimits{56, 180}
	acceptLimits  = dataLimits{196, 136}
	rejectLimits  = dataLimits{148, 136}
)

// ipHeader is what an IP address takes.
const ipHeader = 36

// dataLimit is the room that the id has. The caller holds i.mu.
func (i *ID) dataLimit(l dataLimits) int {
	n := l.connected
	if i.qpType == uverbs.UD {
		n = l.ud
	}
	if l == connectLimits && !i.local.IsValid() { // an IBAddr
		n += ipHeader
	}
	return n
}

func (i *ID) tooMuchData(op string, n, limit int) error {
	return &Error{Op: op, Object: i.describe(), Kind: ErrPrivateData, Errno: unix.EINVAL,
		Detail: strconv.Itoa(n) + " bytes of private data: there is room for " + strconv.Itoa(limit)}
}

// explainConnect says why the kernel refused, after the fact: another transport
// may have other limits.
func (i *ID) explainConnect(op string, err error, p *ConnParam, l dataLimits) error {
	if errors.Is(err, unix.EINVAL) {
		if n, limit := len(i.connectData)+len(p.PrivateData), i.dataLimit(l); n > limit {
			return i.tooMuchData(op, n, limit)
		}
		return wrap(op, i.describe(), err, "the id is not in a state for it: connect follows ResolveRoute, accept a connection request")
	}
	return wrap(op, i.describe(), err, "")
}

// Reject refuses a connection request, or the answer to one: rdma_reject(3).
// The peer gets privateData, at most 148 bytes, 136 for UD. Close the id then.
// [ErrPrivateData] for more, [uverbs.ErrInvalid] where there is nothing to
// refuse, [uverbs.ErrClosed] after Close.
func (i *ID) Reject(privateData []byte) error { return i.reject(privateData, 0) }

// RejectECE refuses because of the peer's vendor options: rdma_reject_ece(3).
// The errors are those of [ID.Reject].
func (i *ID) RejectECE(privateData []byte) error {
	return i.reject(privateData, uint8(RejectVendorOption))
}

func (i *ID) reject(data []byte, reason uint8) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	const op = "reject"
	if i.closed {
		return closed(op, i.describe())
	}
	limit := i.dataLimit(rejectLimits)
	if len(data) > 0xff {
		return i.tooMuchData(op, len(data), limit)
	}
	err := i.node.file.Reject(i.kernel, reason, data)
	if errors.Is(err, unix.EINVAL) && len(data) > limit {
		return i.tooMuchData(op, len(data), limit)
	}
	return wrap(op, i.describe(), err, "there is no request to reject: it was answered, or taken back")
}

// Disconnect ends the connection: rdma_disconnect(3). The QP moves to the error
// state, where what is posted is flushed; both sides get EventDisconnected.
// [uverbs.ErrInvalid] for an id without a connection, such as a UD one,
// [uverbs.ErrClosed] after Close, or what the kernel says to either step.
func (i *ID) Disconnect() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	const op = "disconnect"
	switch {
	case i.closed:
		return closed(op, i.describe())
	case i.dev == nil:
		return invalid(op, i.describe(), "the id is not connected")
	case i.qpType == uverbs.UD:
		return invalid(op, i.describe(), "datagrams have no connection: close the id")
	}
	a := toErr
	if i.dev.rnic {
		a.State = uverbs.StateSQD // iWARP ends its streams in order
	}
	if err := i.modifyQP(a, uverbs.MaskState); err != nil {
		return err
	}
	return wrap(op, i.describe(), i.node.file.Disconnect(i.kernel), "the id is not connected")
}

// Establish completes a connection whose QP the id does not know: it answers
// EventConnectResponse. rdma_establish(3). The QP must be ready to receive.
// [uverbs.ErrInvalid] for an id with a QP, and where there is no answer to
// confirm; [uverbs.ErrClosed] after Close.
func (i *ID) Establish() error {
	if i.qp.Load() != nil {
		return invalid("establish", i.name(), "the id has a QP: the library has done it")
	}
	return i.command("establish", explainEINVAL("there is no answer of a peer to confirm"), func() error {
		err := i.node.file.Accept(&uapi.RdmaUcmAccept{Id: i.kernel})
		i.connected = i.connected || err == nil
		return err
	})
}

// Notify tells the connection manager of an event of the QP: rdma_notify(3).
// [uverbs.EventCommEst] says that data has come before the peer's last message
// of the handshake. [uverbs.ErrInvalid] for an event that means nothing to the
// id, [uverbs.ErrClosed] after Close, or what the kernel says.
func (i *ID) Notify(t uverbs.EventType) error {
	return i.command("notify", explainEINVAL("the event is none that matters to a connection, or there is none"),
		func() error { return i.node.file.Notify(i.kernel, uint32(t)) })
}
