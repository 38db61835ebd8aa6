package uverbs

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Modify changes attributes of the QP, and its state: ibv_modify_qp(3). When
// the kernel refuses, the error names the attributes that the transition
// misses, or does not take.
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
	cmd := ioctl.Get()
	defer cmd.Put()
	var req uapi.IbUverbsModifyQp
	a.encode(&req)
	req.QpHandle, req.AttrMask = q.handle, uint32(m)
	ioctl.Write[ioctl.Void](cmd, uapi.IB_USER_VERBS_CMD_MODIFY_QP, &req)
	if err := q.ctx.dev.Do(cmd); err != nil {
		return q.explainModify(a, m, err)
	}
	return nil
}

// enter opens and shuts the gates of the queues for a new state.
func (q *QP) enter(s QPState) error {
	q.state = s
	var err error
	if s == StateReset {
		err = q.impl.Reset()
	}
	send, recv := gateOpen, gateOpen
	if s < StateRTS {
		send = gateState
	}
	if s < StateInit {
		recv = gateState
	}
	q.sendGate.Store(send)
	q.recvGate.Store(recv)
	return err
}

// Query reads the QP's attributes: ibv_query_qp(3). A driver may fill more
// than m asks for.
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
	return a, nil
}

// A transition is what the kernel demands and allows when a QP goes from one
// state to another.
type transition struct{ required, optional QPMask }

// rcTransitions is the state table of an RC QP (IBA vol. 1, 11.2.5.2). Every
// state also goes to RESET and to ERR, which take no attribute.
var rcTransitions = map[[2]QPState]transition{
	{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
	{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
	{StateInit, StateRTR}: {required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN | MaskMaxDestRdAtomic | MaskMinRNRTimer,
		optional: MaskAltPath | MaskAccess | MaskPKeyIndex},
	{StateRTR, StateRTS}: {required: MaskTimeout | MaskRetryCnt | MaskRNRRetry | MaskSQPSN | MaskMaxRdAtomic,
		optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState},
	{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState | MaskMinRNRTimer},
	{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
	{StateSQE, StateRTS}: {},
	{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState},
	{StateSQD, StateSQD}: {optional: MaskPort | MaskAV | MaskTimeout | MaskRetryCnt | MaskRNRRetry | MaskMaxRdAtomic |
		MaskMaxDestRdAtomic | MaskAltPath | MaskAccess | MaskPKeyIndex | MaskMinRNRTimer | MaskPathMigState},
}

// explainModify says why the kernel refused, from the table and from what the
// port offers. It runs after the fact: a newer kernel may allow more.
func (q *QP) explainModify(a *QPAttr, m QPMask, err error) error {
	op, obj := "modify", q.String()
	if m&MaskState != 0 {
		op = "modify to " + a.State.String()
	}
	if errors.Is(err, unix.ENODATA) { // the GID table has no such entry
		return q.ctx.wrap(op, obj, err, q.explainValues(a, m))
	}
	if !errors.Is(err, unix.EINVAL) {
		return q.ctx.wrap(op, obj, err, explainRoute(a, err))
	}
	from := q.state
	if now, qerr := q.query(MaskState); qerr == nil {
		from = now.State
	}
	if text := explainTransition(from, a.State, m); text != "" {
		return q.ctx.wrap(op, obj, err, text)
	}
	return q.ctx.wrap(op, obj, err, q.explainValues(a, m))
}

// explainTransition holds a mask against the state table, and answers "" when
// nothing is wrong with it.
func explainTransition(from, to QPState, m QPMask) string {
	if m&MaskState == 0 {
		to = from
	}
	t, ok := rcTransitions[[2]QPState{from, to}]
	if !ok && to != StateReset && to != StateErr {
		return fmt.Sprintf("the QP is in state %v, which does not go to %v: take RESET, INIT, RTR, RTS in order, or move it to RESET first", from, to)
	}
	if missing := t.required &^ m; missing != 0 {
		return fmt.Sprintf("%v to %v also needs %v", from, to, missing)
	}
	if extra := m &^ (t.required | t.optional | MaskState); extra != 0 {
		return fmt.Sprintf("%v to %v does not take %v", from, to, extra)
	}
	return ""
}

// explainValues looks for a value that the device does not offer.
func (q *QP) explainValues(a *QPAttr, m QPMask) string {
	ports := q.ctx.device.Ports
	port := int(a.Port)
	if m&MaskAV != 0 {
		port = int(a.AV.Port)
	}
	if m&(MaskAV|MaskPort) != 0 && (port < 1 || port > ports) {
		return fmt.Sprintf("Port is %d: the device has ports 1 to %d", port, ports)
	}
	if m&MaskAV == 0 {
		return ""
	}
	attr, err := q.ctx.QueryPort(port)
	if err != nil {
		return ""
	}
	if attr.LinkLayer == LinkEthernet && !a.AV.IsGlobal {
		return "on RoCE the peer's address needs IsGlobal with DGID, SGIDIndex and HopLimit"
	}
	entries, err := q.ctx.GIDs(port)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.Index == int(a.AV.SGIDIndex) {
			if m&MaskPathMTU != 0 && a.PathMTU > attr.ActiveMTU {
				return fmt.Sprintf("PathMTU is %v, the port's active MTU %v", a.PathMTU, attr.ActiveMTU)
			}
			return ""
		}
	}
	return fmt.Sprintf("SGIDIndex is %d, which port %d does not have: see Context.GIDs", a.AV.SGIDIndex, port)
}

// explainRoute says what an errno of the address resolution means.
func explainRoute(a *QPAttr, err error) string {
	switch errnoOf(err) {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENODEV:
		return "no route from GID index " + sitoa(int(a.AV.SGIDIndex)) + " to the peer's GID, " + a.AV.DGID.String() +
			", check addresses and routing table of the network interface"
	case unix.ETIMEDOUT:
		return "the neighbour that leads to " + a.AV.DGID.String() + " does not answer, check that it is up and that the address is right"
	}
	return ""
}
