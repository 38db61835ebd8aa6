package uverbs

import "fmt"

// A transition lists the attributes that the kernel requires and allows when a QP goes from one
// state to another.
type transition struct{ required, optional QPMask }

// transitions are the state tables of the QP types (IBA vol. 1, 11.2.5.2). In addition, every
// state goes to RESET and to ERR, without attributes, except those of a DCT.
var transitions = map[QPType]map[[2]QPState]transition{
	RC: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}: {
			required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN | MaskMaxDestRdAtomic | MaskMinRNRTimer,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex,
		},
		{StateRTR, StateRTS}: {
			required: MaskTimeout | MaskRetryCount | MaskRNRRetryCount | MaskSQPSN | MaskMaxRdAtomic,
			optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState,
		},
		{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState | MaskMinRNRTimer},
		{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
		{StateSQE, StateRTS}: {},
		{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState},
		{StateSQD, StateSQD}: {
			optional: MaskPort | MaskAV | MaskTimeout | MaskRetryCount | MaskRNRRetryCount | MaskMaxRdAtomic |
				MaskMaxDestRdAtomic | MaskAltPath | MaskAccess | MaskPKeyIndex | MaskMinRNRTimer | MaskPathMigState,
		},
	},
	UC: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}: {
			required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex,
		},
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
		{StateInit, StateRTR}: {
			required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex,
		},
		{StateRTR, StateRTS}: {
			required: MaskTimeout | MaskRetryCount | MaskRNRRetryCount | MaskSQPSN | MaskMaxRdAtomic,
			optional: MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState,
		},
		{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState},
		{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
		{StateSQE, StateRTS}: {},
		{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskPathMigState},
		{StateSQD, StateSQD}: {
			optional: MaskPort | MaskAV | MaskTimeout | MaskRetryCount | MaskRNRRetryCount | MaskMaxRdAtomic | MaskAltPath |
				MaskAccess | MaskPKeyIndex | MaskPathMigState,
		},
	},
	XRCRecv: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskAccess},
		{StateInit, StateRTR}: {
			required: MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN | MaskMaxDestRdAtomic | MaskMinRNRTimer,
			optional: MaskAltPath | MaskAccess | MaskPKeyIndex,
		},
		{StateRTR, StateRTS}: {
			required: MaskTimeout | MaskSQPSN,
			optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState,
		},
		{StateRTS, StateRTS}: {optional: MaskCurState | MaskAccess | MaskAltPath | MaskPathMigState | MaskMinRNRTimer},
		{StateRTS, StateSQD}: {optional: MaskEnSQDAsyncNotify},
		{StateSQE, StateRTS}: {},
		{StateSQD, StateRTS}: {optional: MaskCurState | MaskAltPath | MaskAccess | MaskMinRNRTimer | MaskPathMigState},
		{StateSQD, StateSQD}: {
			optional: MaskPort | MaskAV | MaskTimeout | MaskMaxDestRdAtomic | MaskAltPath | MaskAccess | MaskPKeyIndex |
				MaskMinRNRTimer | MaskPathMigState,
		},
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
	// The efa driver has the table of SRD: srd_qp_state_table.
	SRD: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort | MaskQKey},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort | MaskQKey},
		{StateInit, StateRTR}:   {optional: MaskPKeyIndex | MaskQKey},
		{StateRTR, StateRTS}:    {required: MaskSQPSN, optional: MaskCurState | MaskQKey | MaskRNRRetryCount},
		{StateRTS, StateRTS}:    {optional: MaskCurState | MaskQKey},
		{StateRTS, StateSQD}:    {optional: MaskEnSQDAsyncNotify},
		{StateSQE, StateRTS}:    {optional: MaskCurState | MaskQKey},
		{StateSQD, StateRTS}:    {optional: MaskCurState | MaskQKey},
		{StateSQD, StateSQD}:    {optional: MaskPKeyIndex | MaskQKey},
	},
	// mlx5_ib has the tables of DC: modify_dci_qp_is_ok and mlx5_ib_modify_dct.
	DCI: {
		{StateReset, StateInit}: {required: MaskPKeyIndex | MaskPort},
		{StateInit, StateInit}:  {optional: MaskPKeyIndex | MaskPort},
		{StateInit, StateRTR}:   {required: MaskPathMTU, optional: MaskPKeyIndex | MaskAV},
		{StateRTR, StateRTS}: {
			required: MaskTimeout | MaskRetryCount | MaskRNRRetryCount | MaskMaxRdAtomic | MaskSQPSN,
			optional: MaskMinRNRTimer,
		},
		{StateRTS, StateRTS}: {optional: MaskMinRNRTimer},
	},
	DCT: {
		{StateReset, StateInit}: {required: MaskAccess | MaskPKeyIndex | MaskPort},
		{StateInit, StateRTR}:   {required: MaskMinRNRTimer | MaskAV | MaskPathMTU},
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

// explainTransition checks a mask against the state table. It returns "" if it finds no error.
func explainTransition(typ QPType, from, to QPState, m QPMask) string {
	if m&MaskState == 0 {
		to = from
	}
	t, ok := transitions[typ][[2]QPState{from, to}]
	if !ok && typ == DCT {
		return fmt.Sprintf("the DCT is in state %v, which does not go to %v: it goes from RESET to INIT and RTR; "+
			"to end it, close it", from, to)
	}
	if !ok && to != StateReset && to != StateErr {
		return fmt.Sprintf("the QP is in state %v, which does not go to %v: pass RESET, INIT, RTR, RTS in order, or move "+
			"it to RESET first", from, to)
	}
	if missing := t.required &^ m; missing != 0 {
		return fmt.Sprintf("%v to %v also needs %v", from, to, missing)
	}
	if extra := m &^ (t.required | t.optional | MaskState); extra != 0 {
		return fmt.Sprintf("%v to %v does not accept %v", from, to, extra)
	}
	return ""
}
