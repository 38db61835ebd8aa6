package cm

import (
	"errors"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// process converts an event of the kernel to an [Event] and does the library's part:
// it changes QP states and creates the id of a connection request. It returns nil
// for an event that the caller should not see. It is called by the goroutine that
// waits for the event.
func (id *ID) process(r *record) *Event {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() || r.mc != nil && r.mc.hasLeft {
		r.discard(nil)
		return nil
	}
	raw := &r.raw
	e := &Event{
		Type:    r.typ(),
		Status:  int(int32(raw.Status)),
		ID:      id,
		ECE:     ECE{raw.Ece.VendorId, raw.Ece.AttrMod},
		subject: subject{peer: id.peer, local: id.local, rnic: id.dev != nil && id.dev.rnic},
	}
	if r.mc != nil {
		r.mc.react(e, raw)
		return e
	}
	id.decode(e, raw)
	if e.Type == EventConnectRequest {
		id.request(e, r)
		return e
	}
	if !id.react(e) {
		return nil
	}
	return e
}

// decode parses the parameters of an event.
func (id *ID) decode(e *Event, raw *uapi.RdmaUcmEventResp) {
	switch e.Type {
	case EventAddrResolved, EventAddrError, EventRouteResolved, EventRouteError:
	case EventUser, eventInternal:
		e.Arg = rdmacm.Arg(raw)
	default:
		if id.qpType == uverbs.UD {
			e.UD, e.PrivateData = udParam(raw)
		} else {
			e.Conn, e.PrivateData = connParam(raw)
		}
	}
}

// react does the library's part for an event. It returns false if the caller should
// not see the event. The caller holds id.mu.
func (id *ID) react(e *Event) bool {
	switch e.Type {
	case EventAddrResolved:
		if err := id.queryAddr(true); err != nil {
			e.fail(EventAddrError, err)
		}
	case EventConnectResponse:
		id.setAttrs(func() { id.remoteECE = e.ECE })
		if id.qp.Load() == nil {
			break // the program must call Establish
		}
		if err := id.respond(); err != nil {
			e.withdrawn = errors.Is(err, ErrDisconnected) && id.syncID() != nil
			if !e.withdrawn {
				id.life.enter(phaseFailed)
			}
			e.fail(EventConnectError, err)
			break
		}
		e.Type = EventEstablished
		id.life.enter(phaseEstablished)
	case EventEstablished:
		id.establishedRNIC(e.Conn.ResponderResources)
		id.life.enter(phaseEstablished)
	case EventRejected:
		if id.life.current() == phaseFailed {
			return false // the peer replies to our rejection
		}
		if id.connected() {
			id.terminateAsync(e)
		}
		// The receives in the QP are flushed.
		if err := id.modifyQP(toErr, uverbs.MaskState); err != nil {
			e.err = errors.Join(e.Err(), err)
		}
	case EventUnreachable, EventConnectError:
		if id.connected() {
			id.terminateAsync(e)
		}
	case EventDisconnected:
		if id.life.current() == phaseFailed {
			return false
		}
		id.terminateAsync(e)
	case EventDeviceRemoval:
		id.terminateAsync(e)
	case eventInternal:
		if EventType(e.Arg) != EventAddrinfoResolved {
			return false
		}
		e.Type = EventAddrinfoResolved
	}
	return true
}

// request creates the id of a connection request. The caller holds the listener's mu.
func (id *ID) request(e *Event, r *record) {
	child := &ID{Context: id.Context, ps: id.ps, qpType: id.qpType, fromRequest: true, node: r.node, kernelID: r.raw.Id,
		responderResources: e.Conn.ResponderResources, initiatorDepth: e.Conn.InitiatorDepth, remoteECE: e.ECE}
	if err := r.node.addRef("create id on"); err != nil {
		r.discard(nil)
		e.fail(EventConnectError, err)
		return
	}
	if s := id.syncID(); s != nil {
		child.dest.sync = newSync(child)
		s.pump.addRequest(child.dest.sync)
	} else {
		child.dest.channel = id.dest.channel
	}
	child.uid = register(child)
	child.ticket = leak.Track("cm", "id")
	if err := child.firstQuery(); err != nil {
		// The peer is rejected. The listener's event has the error.
		e.fail(EventConnectError, errors.Join(err, child.Close()))
		return
	}
	e.ID, e.Listener = child, id
}

// firstQuery queries the addresses of a connection request.
func (id *ID) firstQuery() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.queryAddr(true)
}

// respond moves the QP to RTS and confirms the connection. The caller holds id.mu.
func (id *ID) respond() error {
	err := id.checkECE()
	if err == nil {
		err = id.toRTR(MaxRespRes)
	}
	if err == nil {
		err = id.toRTS(MaxInitDepth)
	}
	if err == nil {
		err = id.wrap("connect", id.describe(), id.node.file.Accept(&uapi.RdmaUcmAccept{Id: id.kernelID}), "")
	}
	if err != nil {
		return errors.Join(id.withdrawnError("connect", err), id.modifyQP(toErr, uverbs.MaskState))
	}
	return nil
}

// react handles an event of the membership. The caller holds the id's mu.
func (m *Membership) react(e *Event, raw *uapi.RdmaUcmEventResp) {
	e.Membership, e.subject = m, subject{name: m.name}
	e.UD, e.PrivateData = udParam(raw)
	if e.Type != EventMulticastJoin {
		return
	}
	m.gid, m.lid = e.UD.AH.DGID, e.UD.AH.DLID
	if err := m.attach(); err != nil {
		e.fail(EventMulticastError, err)
		return
	}
	m.joined.Store(true)
}
