package uverbs

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// A transition lists the attributes that the kernel requires and allows when a QP goes from one
// state to another.
type transition struct{ required, optional QPMask }

// transitions are the state tables of the QP types (IBA vol. 1, 11.2.5.2). In addition, every
// state goes to RESET and to ERR, without attributes.
var transitions = map[QPType]map[[2]QPState]transition{
	RC: {
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
	},
	UC: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}: {required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex},
		{StateRTR, StateRTS}: {required: MaskSQPSN, optional: MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState},
		{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState},
		{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
		{StateSQE, StateRTS}: {optional: MaskCurState | MaskAccess},
		{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState},
		{StateSQD, StateSQD}: {optional: MaskAV | MaskAltPath | MaskAccess | MaskPKeyIndex | MaskPathMigState},
	},
	XRCSend: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}: {required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex},
		{StateRTR, StateRTS}: {required: MaskTimeout | MaskRetryCnt | MaskRNRRetry | MaskSQPSN | MaskMaxRdAtomic,
			optional: MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState},
		{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState},
		{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
		{StateSQE, StateRTS}: {},
		{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState},
		{StateSQD, StateSQD}: {optional: MaskPort | MaskAV | MaskTimeout | MaskRetryCnt | MaskRNRRetry | MaskMaxRdAtomic |
			MaskAltPath | MaskAccess | MaskPKeyIndex | MaskPathMigState},
	},
	XRCRecv: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}: {required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN | MaskMaxDestRdAtomic | MaskMinRNRTimer,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex},
		{StateRTR, StateRTS}: {required: MaskTimeout | MaskSQPSN,
			optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState},
		{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState | MaskMinRNRTimer},
		{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
		{StateSQE, StateRTS}: {},
		{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState},
		{StateSQD, StateSQD}: {optional: MaskPort | MaskAV | MaskTimeout | MaskMaxDestRdAtomic | MaskAltPath | MaskAccess |
			MaskPKeyIndex | MaskMinRNRTimer | MaskPathMigState},
	},
	UD: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskQKey},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskQKey},
		{StateInit, StateRTR}:   {optional: MaskPKeyIndex | MaskQKey},
		{StateRTR, StateRTS}:    {required: MaskSQPSN, optional: MaskCurState | MaskQKey},
		{StateRTS, StateRTS}:    {optional: MaskCurState | MaskQKey},
		{StateRTS, StateSQD}:    {optional: MaskEnSQDAsyncNotify},
		{StateSQE, StateRTS}:    {optional: MaskCurState | MaskQKey},
		{StateSQD, StateRTS}:    {optional: MaskCurState | MaskQKey},
		{StateSQD, StateSQD}:    {optional: MaskPKeyIndex | MaskQKey},
	},
	RawPacket: {
		{StateReset, StateInit}: {required: MaskPort},
		{StateInit, StateInit}:  {},
		{StateInit, StateRTR}:   {},
		{StateRTR, StateRTS}:    {optional: MaskRateLimit},
		{StateRTS, StateRTS}:    {optional: MaskRateLimit},
		{StateRTS, StateSQD}:    {},
		{StateSQE, StateRTS}:    {},
		{StateSQD, StateRTS}:    {},
		{StateSQD, StateSQD}:    {},
	},
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
			return q.ctx.wrap(op, obj, err, fmt.Sprintf("QKey is %#x: one with bit 31 set needs CAP_NET_RAW, or `rdma system set privileged-qkey on`", a.QKey))
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
		text = "the device's driver takes no QP to SQD, mlx5's for one: to empty the queues, use QP.Drain"
	}
	return q.ctx.wrap(op, obj, err, text)
}

// explainTransition checks a mask against the state table. It returns "" if it finds no error.
func explainTransition(typ QPType, from, to QPState, m QPMask) string {
	if m&MaskState == 0 {
		to = from
	}
	t, ok := transitions[typ][[2]QPState{from, to}]
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

func (c *Context) explainPort(port int) string {
	if port < 1 || port > c.device.Ports {
		return fmt.Sprintf("Port is %d: the device has ports 1 to %d", port, c.device.Ports)
	}
	return ""
}

// explainAddress looks for an error in an address on a port that exists.
func (c *Context) explainAddress(a *AHAttr) string {
	port := int(a.Port)
	attr, err := c.QueryPort(port)
	if err != nil {
		return ""
	}
	if attr.LinkLayer == LinkEthernet && !a.IsGlobal {
		return "on RoCE the peer's address needs IsGlobal with DGID, SGIDIndex and HopLimit"
	}
	entries, err := c.gidTable(port)
	if err != nil || slices.ContainsFunc(entries, func(e GIDEntry) bool { return e.Index == int(a.SGIDIndex) }) {
		return ""
	}
	return fmt.Sprintf("SGIDIndex is %d, which port %d does not have: see Context.GIDs", a.SGIDIndex, port)
}

// explainRoute returns the cause of an error of address resolution.
func explainRoute(a *AHAttr, err error) string {
	switch errnoOf(err) {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENODEV:
		return "no route from GID index " + sitoa(int(a.SGIDIndex)) + " to the peer's GID, " + a.DGID.String() +
			", check addresses and routing table of the network interface"
	case unix.ETIMEDOUT:
		return "the neighbor on the way to " + a.DGID.String() + " did not reply: check that it is up and that the address is right"
	}
	return ""
}
