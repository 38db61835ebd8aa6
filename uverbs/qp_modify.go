package uverbs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Modify changes attributes of the QP, such as its state: ibv_modify_qp(3). If the
// kernel refuses, the error lists the attributes that the transition requires but m
// lacks, and those that it does not allow. It is then [ErrInvalid] or the kernel's
// error. Modify returns [ErrClosed] after Close.
func (q *QP) Modify(a QPAttr, m QPMask) error {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return named("modify", q.String(), ErrClosed)
	}
	if m&(MaskState|MaskMaxRdAtomic) == 0 {
		return q.modify(&a, m)
	}
	// No post may come between the kernel's transition and the update of the queues.
	q.lockBoth()
	defer q.unlockBoth()
	if err := q.modify(&a, m); err != nil {
		return err
	}
	if p, ok := q.impl.(driver.RdAtomic); ok && m&MaskMaxRdAtomic != 0 {
		p.SetRdAtomic(a.MaxRdAtomic)
	}
	q.setNumbers(&a, m)
	if m&MaskState == 0 {
		return nil
	}
	return q.enter(a.State)
}

// setNumbers tells the provider how packets are numbered.
func (q *QP) setNumbers(a *QPAttr, m QPMask) {
	p, ok := q.impl.(driver.Numbered)
	if ok && m&MaskPathMTU != 0 {
		p.SetMTU(a.PathMTU.Bytes())
	}
	if ok && m&MaskSQPSN != 0 {
		p.SetSendPSN(a.SQPSN)
	}
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
	if p, ok := q.impl.(driver.DCT); ok {
		atomic.StoreUint32(&q.number, p.Number())
	}
	return nil
}

// enter sets the gates of the queues for a new state.
func (q *QP) enter(s QPState) error {
	q.state = s
	var err error
	if s == StateReset {
		q.purgeCQs()
		err = q.impl.Reset()
	}
	if p, ok := q.impl.(driver.Stateful); ok {
		p.Entered(uint8(s))
	}
	send, recv := q.gatesOf(s)
	q.sendGate.set(q.ctx, send)
	q.recvGate.set(q.ctx, recv)
	return err
}

// established is verbs.Established.
func (q *QP) established(depth uint8) {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	q.lockBoth()
	defer q.unlockBoth()
	if q.state >= StateRTS || q.sendGate.Load() == gateClosed {
		return
	}
	if p, ok := q.impl.(driver.RdAtomic); ok {
		p.SetRdAtomic(depth)
	}
	q.state = StateRTS
	send, recv := q.gatesOf(StateRTS)
	q.sendGate.set(q.ctx, send)
	q.recvGate.set(q.ctx, recv)
}

// gatesOf returns the gates of both queues in a state.
func (q *QP) gatesOf(s QPState) (send, recv uint32) {
	if s < StateRTS {
		send = gateState
	}
	switch {
	case q.cfg.SRQ != nil:
		recv = gateSRQ
	case q.cfg.Type == XRCSend || q.cfg.Type == XRCRecv || q.cfg.MaxRecvWR == 0:
		recv = gateNone
	case s < StateInit:
		recv = gateState
	case s == StateErr:
		recv = gateFlush
	}
	if q.cfg.Type == XRCRecv || q.cfg.MaxSendWR == 0 {
		send = gateNone
	}
	return send, recv
}

// explainModify adds the cause to the kernel's error, from the state table and the port's
// attributes. It runs only after the kernel has refused the command, because a newer kernel may
// allow more.
func (q *QP) explainModify(a *QPAttr, m QPMask, err error) error {
	op, obj := "modify", q.String()
	if m&MaskState != 0 {
		op = "modify to " + a.State.String()
	}
	switch errnoOf(err) {
	case unix.ENODATA: // the GID table has no such entry
		return q.ctx.wrap(op, obj, err, q.explainValues(a, m))
	case unix.EOPNOTSUPP:
		if m&MaskRateLimit != 0 {
			return q.ctx.wrap(op, obj, err, "the device does not limit the rate of a QP: leave MaskRateLimit out")
		}
	case unix.EPERM:
		if m&MaskQKey != 0 && a.QKey>>31 != 0 {
			return q.ctx.wrap(op, obj, err, fmt.Sprintf("QKey is %#x: one with bit 31 set needs CAP_NET_RAW, "+
				"or `rdma system set privileged-qkey on`", a.QKey))
		}
	}
	if !errors.Is(err, unix.EINVAL) {
		return q.ctx.wrap(op, obj, err, explainRoute(&a.AV, err))
	}
	from := q.state
	if now, qerr := q.query(MaskState); qerr == nil {
		from = now.State
	}
	if text := explainTransition(q.cfg.Type, from, a.State, m); text != "" {
		return q.ctx.wrap(op, obj, err, text)
	}
	text := q.explainValues(a, m)
	if text == "" && m&MaskState != 0 && a.State == StateSQD {
		text = "the device's driver moves no QP to SQD, as that of mlx5: to empty the queues, use QP.Drain"
	}
	return q.ctx.wrap(op, obj, err, text)
}

// explainQuery returns why the kernel does not query a DCT.
func (q *QP) explainQuery(m QPMask, err error) string {
	if q.cfg.Type != DCT || errnoOf(err) != unix.EINVAL {
		return ""
	}
	if extra := m &^ queryDCT; extra != 0 {
		return fmt.Sprintf("a DCT has no %v: query %v", extra, queryDCT)
	}
	return fmt.Sprintf("a DCT can be queried in state RTR, it is in %v: move it there by Ready", q.state)
}

// queryDCT are the attributes of a DCT that mlx5_ib returns.
const queryDCT = MaskState | MaskAccess | MaskPort | MaskMinRNRTimer | MaskAV | MaskPathMTU | MaskPKeyIndex

// explainValues looks for a value that the device does not support.
func (q *QP) explainValues(a *QPAttr, m QPMask) string {
	port := int(a.Port)
	if m&MaskAV != 0 {
		port = int(a.AV.Port)
	}
	if m&(MaskAV|MaskPort) != 0 {
		if text := q.ctx.explainPort(port); text != "" {
			return text
		}
	}
	if m&MaskAV == 0 {
		return ""
	}
	if text := q.ctx.explainAddress(&a.AV); text != "" {
		return text
	}
	attr, err := q.ctx.QueryPort(port)
	if err == nil && m&MaskPathMTU != 0 && a.PathMTU > attr.ActiveMTU {
		return fmt.Sprintf("PathMTU is %v, the port's active MTU %v", a.PathMTU, attr.ActiveMTU)
	}
	return ""
}

// State returns the state that Modify set. The device may have moved the QP to ERR since then:
// Query returns the current state.
func (q *QP) State() QPState {
	q.stateMu.Lock()
	defer q.stateMu.Unlock()
	return q.state
}

// Query returns the QP's attributes: ibv_query_qp(3). A driver may fill in more
// than m selects. Query returns [ErrClosed] after Close.
func (q *QP) Query(m QPMask) (QPAttr, error) {
	q.stateMu.Lock() // Close waits for the command
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return QPAttr{}, named("query", q.String(), ErrClosed)
	}
	return q.query(m)
}

func (q *QP) query(m QPMask) (QPAttr, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsQueryQpResp](cmd, uapi.IB_USER_VERBS_CMD_QUERY_QP,
		&uapi.IbUverbsQueryQp{QpHandle: q.handle, AttrMask: uint32(m)})
	if err := q.ctx.dev.Do(cmd); err != nil {
		return QPAttr{}, q.ctx.wrap("query", q.String(), err, q.explainQuery(m, err))
	}
	var a QPAttr
	a.decode(resp)
	if a.Cap.MaxSendSGE == 0 {
		// The provider manages the queues. The kernel does not know the sizes of the send queue,
		// and that not all slots of the receive queue are used.
		a.Cap.MaxSendWR, a.Cap.MaxSendSGE, a.Cap.MaxInline = q.cap.MaxSendWR, q.cap.MaxSendSGE, q.cap.MaxInline
		if q.cap.MaxRecvWR > 0 {
			a.Cap.MaxRecvWR = min(a.Cap.MaxRecvWR, q.cap.MaxRecvWR)
		}
	}
	return a, nil
}
