package uverbs

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// Modify changes attributes of the QP, and its state: ibv_modify_qp(3). When
// the kernel refuses, the error names the attributes that the transition
// misses, or does not take. It is [ErrInvalid] then, or what the kernel said;
// [ErrClosed] after Close.
func (q *QP) Modify(a QPAttr, m QPMask) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return ErrClosed
	}
	if m&MaskState == 0 {
		return q.modify(&a, m)
	}
	// A post must not slip between the kernel's transition and what the queues
	// make of it.
	q.lockBoth()
	defer q.unlockBoth()
	if err := q.modify(&a, m); err != nil {
		return err
	}
	return q.enter(a.State)
}

func (q *QP) modify(a *QPAttr, m QPMask) error {
	var req uapi.IbUverbsModifyQp
	a.encode(&req)
	req.QpHandle, req.AttrMask = q.handle, uint32(m)
	if err := q.modifyCommand(&req, a.RateLimit); err != nil {
		return q.explainModify(a, m, err)
	}
	if m&MaskPort != 0 {
		q.port.Store(uint32(a.Port))
	}
	return nil
}

// enter opens and shuts the gates of the queues for a new state.
func (q *QP) enter(s QPState) error {
	q.state = s
	var err error
	if s == StateReset {
		q.purgeCQs()
		err = q.impl.Reset()
	}
	if p, ok := q.impl.(ProviderStateful); ok {
		p.Entered(s)
	}
	send, recv := q.gatesOf(s)
	q.sendGate.set(q.ctx, send)
	q.recvGate.set(q.ctx, recv)
	return err
}

// gatesOf are the gates of both queues in a state.
func (q *QP) gatesOf(s QPState) (send, recv uint32) {
	if s < StateRTS {
		send = gateState
	}
	switch {
	case q.cfg.SRQ != nil:
		recv = gateSRQ
	case q.cfg.Type == XRCSend || q.cfg.Type == XRCRecv:
		recv = gateNone
	case s < StateInit:
		recv = gateState
	case s == StateErr:
		recv = gateFlush
	}
	if q.cfg.RSS != nil {
		return gateNone, gateNone
	}
	if q.cfg.Type == XRCRecv {
		send = gateNone
	}
	return send, recv
}

// Query reads the QP's attributes: ibv_query_qp(3). A driver may fill more
// than m asks for. [ErrClosed] after Close.
func (q *QP) Query(m QPMask) (QPAttr, error) {
	q.stateMu.Lock() // Close waits
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return QPAttr{}, ErrClosed
	}
	return q.query(m)
}

func (q *QP) query(m QPMask) (QPAttr, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsQueryQpResp](cmd, uapi.IB_USER_VERBS_CMD_QUERY_QP,
		&uapi.IbUverbsQueryQp{QpHandle: q.handle, AttrMask: uint32(m)})
	if err := q.ctx.dev.Do(cmd); err != nil {
		return QPAttr{}, q.ctx.wrap("query", q.String(), err, "")
	}
	var a QPAttr
	a.decode(resp)
	if a.Cap.MaxSendSGE == 0 { // a kernel that leaves the send queue to its owner does not know
		a.Cap.MaxSendWR, a.Cap.MaxSendSGE, a.Cap.MaxInline = q.cap.MaxSendWR, q.cap.MaxSendSGE, q.cap.MaxInline
	}
	return a, nil
}
