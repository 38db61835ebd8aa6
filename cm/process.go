package cm

import (
	"errors"
	"time"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// process makes an [Event] of what the kernel reports, and does what the
// library owes to it: it moves QPs, and makes the id of a connection request.
// It answers nil for what nobody is to hear of. It runs in the goroutine that
// waits for the event.
func (i *ID) process(r *record) *Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || r.mc != nil && r.mc.left {
		r.drop()
		return nil
	}
	raw := &r.raw
	e := &Event{Type: r.typ(), Status: int(int32(raw.Status)), ID: i, ECE: ECE{raw.Ece.VendorId, raw.Ece.AttrMod}, object: i.describe()}
	if r.mc != nil {
		r.mc.react(e, raw)
		return e
	}
	i.decode(e, raw)
	if e.Type == EventConnectRequest {
		i.request(e, r)
		return e
	}
	if !i.react(e) {
		return nil
	}
	return e
}

// decode reads the parameters that come with an event.
func (i *ID) decode(e *Event, raw *uapi.RdmaUcmEventResp) {
	switch e.Type {
	case EventAddrResolved, EventAddrError, EventRouteResolved, EventRouteError:
	case EventUser, EventInternal:
		e.Arg = rdmacm.Arg(raw)
	default:
		if i.qpType == uverbs.UD {
			e.UD, e.PrivateData = udParam(raw)
		} else {
			e.Conn, e.PrivateData = connParam(raw)
		}
	}
}

// react does what the library owes to an event. It answers false when the
// event is no news. The caller holds i.mu.
func (i *ID) react(e *Event) bool {
	switch e.Type {
	case EventAddrResolved:
		if err := i.queryAddr(true); err != nil {
			e.fail(EventAddrError, err)
		}
	case EventConnectResponse:
		i.remoteECE = e.ECE
		if i.qp.Load() == nil {
			break // Establish is the program's
		}
		if err := i.respond(); err != nil {
			i.failed = true
			e.fail(EventConnectError, err)
			break
		}
		e.Type, i.connected = EventEstablished, true
	case EventEstablished:
		i.connected = true
	case EventRejected:
		if i.failed {
			return false // it answers what this side said
		}
		// Receives that wait in the QP are flushed.
		if err := i.modifyQP(toErr, uverbs.MaskState); err != nil {
			e.err = errors.Join(e.Err(), err)
		}
	case EventDisconnected:
		i.over = e.Err()
		return !i.failed
	case EventDeviceRemoval:
		i.over = e.Err()
	case EventInternal:
		if EventType(e.Arg) != EventAddrinfoResolved {
			return false
		}
		e.Type = EventAddrinfoResolved
	}
	return true
}

var toErr = uverbs.QPAttr{State: uverbs.StateErr}

// hangUp is this side's part of the end of a connection: the peer's kernel,
// which waits for it, is answered, and what is posted in the QP is flushed, so
// that nobody waits for it for ever. why is what the id says of it from now on.
// Sends under way have a moment. A device that is gone can neither answer nor
// acknowledge.
func (i *ID) hangUp(t EventType, why error, moment time.Duration) {
	qp := i.answerEnd(t, why)
	if qp == nil {
		return
	}
	if t == EventDisconnected {
		lastAcks(qp, moment)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.qp.Load() != qp {
		return
	}
	err := i.modifyQP(toErr, uverbs.MaskState)
	if t == EventDeviceRemoval && errors.Is(err, uverbs.ErrDeviceGone) {
		return // as why says
	}
	i.endFailed(err)
}

// answerEnd answers the peer. It returns the QP that is to be flushed, nil if
// none is.
func (i *ID) answerEnd(t EventType, why error) *uverbs.QP {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = why
	if i.closed || i.single {
		return nil
	}
	if t == EventDisconnected {
		// The kernel has nothing against being asked once more by the side that
		// began. EINVAL says that it has let go of the connection, or on iWARP,
		// where no answer is owed, that it does not know the QP.
		if err := i.node.file.Disconnect(i.kernel); !errors.Is(err, unix.EINVAL) {
			i.endFailed(wrap("disconnect", i.describe(), err, ""))
		}
	}
	return i.qp.Load()
}

// lastAcks waits until the sends under way have completed, for a moment at
// most. A peer that has its message may hang up at once, and what it says by
// the connection manager then overtakes the acknowledgement: to flush the send
// would call a message lost that has arrived.
func lastAcks(qp *uverbs.QP, moment time.Duration) {
	const longest = 5 * time.Millisecond
	end := time.Now().Add(moment)
	for pause := 50 * time.Microsecond; qp.SendsOutstanding() > 0 && time.Now().Before(end); pause = min(2*pause, longest) {
		time.Sleep(pause)
	}
}

// endFailed adds an error to what calls say that wait. The caller holds i.mu.
func (i *ID) endFailed(err error) {
	if s := i.synced(); s != nil && err != nil {
		s.mu.Lock()
		s.err = errors.Join(s.err, err)
		s.mu.Unlock()
	}
}

// fail makes the event one of an error that arose here.
func (e *Event) fail(t EventType, err error) {
	errno := unix.EIO
	var own *Error
	var verbs *uverbs.Error
	switch {
	case errors.As(err, &own) && own.Errno != 0:
		errno = own.Errno
	case errors.As(err, &verbs) && verbs.Errno != 0:
		errno = verbs.Errno
	}
	e.Type, e.Status, e.err = t, -int(errno), err
}

// request makes the id of a connection request. The caller holds the
// listener's mu.
func (i *ID) request(e *Event, r *record) {
	child := &ID{Context: i.Context, ps: i.ps, qpType: i.qpType, requested: true, node: r.node, kernel: r.raw.Id,
		responderResources: e.Conn.ResponderResources, initiatorDepth: e.Conn.InitiatorDepth, remoteECE: e.ECE}
	if err := r.node.hold(); err != nil {
		r.drop()
		e.fail(EventConnectError, err)
		return
	}
	if s := i.synced(); s != nil {
		child.to.sync = newSync(child)
		s.pump.join(child.to.sync)
	} else {
		child.to.events = i.to.events
	}
	child.uid = enroll(child)
	child.ticket = leak.Track("cm", "id")
	if err := child.firstQuery(); err != nil {
		// The peer sees a rejection. The listener is told why.
		e.fail(EventConnectError, errors.Join(err, child.Close()))
		return
	}
	e.ID, e.Listener = child, i
}

// firstQuery reads the addresses of a connection request.
func (i *ID) firstQuery() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.queryAddr(true)
}

// respond takes the QP to RTS and tells the peer. The caller holds i.mu.
func (i *ID) respond() error {
	err := i.toRTR(MaxRespRes)
	if err == nil {
		err = i.toRTS(MaxInitDepth)
	}
	if err == nil {
		err = wrap("connect", i.describe(), i.node.file.Accept(&uapi.RdmaUcmAccept{Id: i.kernel}), "")
	}
	if err != nil {
		return errors.Join(i.withdrawn("connect", err), i.modifyQP(toErr, uverbs.MaskState))
	}
	return nil
}

// connParam reads what a connection's event carries.
func connParam(r *uapi.RdmaUcmEventResp) (ConnParam, []byte) {
	p := rdmacm.ConnParam(r)
	return ConnParam{QPN: p.QpNum, QKey: p.Qkey, SRQ: p.Srq != 0, ResponderResources: p.ResponderResources,
		InitiatorDepth: p.InitiatorDepth, FlowControl: p.FlowControl != 0, RetryCount: p.RetryCount,
		RNRRetryCount: p.RnrRetryCount}, privateData(p.PrivateData[:], p.PrivateDataLen)
}

// udParam reads what a datagram id's event carries.
func udParam(r *uapi.RdmaUcmEventResp) (UDParam, []byte) {
	p := rdmacm.UDParam(r)
	return UDParam{QPN: p.QpNum, QKey: p.Qkey, AH: ahAttr(&p.AhAttr)}, privateData(p.PrivateData[:], p.PrivateDataLen)
}

func ahAttr(a *uapi.IbUverbsAhAttr) uverbs.AHAttr {
	return uverbs.AHAttr{DGID: a.Grh.Dgid, FlowLabel: a.Grh.FlowLabel, SGIDIndex: a.Grh.SgidIndex, HopLimit: a.Grh.HopLimit,
		TrafficClass: a.Grh.TrafficClass, DLID: a.Dlid, SL: a.Sl, SrcPathBits: a.SrcPathBits, StaticRate: a.StaticRate,
		IsGlobal: a.IsGlobal != 0, Port: a.PortNum}
}

// privateData copies what came with an event, nil for nothing.
func privateData(b []byte, n uint8) []byte {
	if n == 0 {
		return nil
	}
	return append([]byte(nil), b[:n]...)
}
