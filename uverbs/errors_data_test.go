package uverbs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The functions of this file return parts of the cases of TestErrorTexts.

func ucErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	qp := func() *QP {
		return good(b.pd.CreateQP(QPConfig{Type: UC, SendCQ: b.cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
	}
	fresh, connected := qp(), qp()
	check(t, connected.Connect(good(b.qp.Endpoint())(t)))
	inBatch := func(op func(*SendBatch)) error {
		batch := connected.StartSend()
		op(&batch)
		return batch.Submit()
	}
	inv := []error{ErrInvalid, unix.EINVAL}
	cases := []errorCase{
		{"UC, made ready", fresh.Ready(), inv},
		{"UC, no MTU", fresh.Connect(Endpoint{}), inv},
		{"UC, INIT without Access", fresh.Modify(QPAttr{State: StateInit, Port: 1}, MaskState|MaskPort|MaskPKeyIndex), inv},
		{"UC, READ", second(connected.PostSend(SendWR{Opcode: OpRead})), []error{ErrQPType, ErrOpcode}},
		{"UC, atomic", second(connected.PostSend(SendWR{Opcode: OpFetchAdd})), []error{ErrQPType, ErrOpcode}},
		{"UC, atomic in a batch", inBatch(func(b *SendBatch) { b.CompareSwap(1, 0, 4096, 7, 1, 2) }),
			[]error{ErrQPType, ErrOpcode}},
		{"UC, READ in a batch", inBatch(func(b *SendBatch) { b.Read(1, 0, 4096, 7) }), []error{ErrQPType, ErrOpcode}},
	}
	check(t, fresh.Init())
	const rtr = MaskState | MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN
	return append(cases,
		errorCase{"UC, RTR, all missing", fresh.Modify(QPAttr{State: StateRTR}, MaskState), inv},
		errorCase{"UC, RTR as of RC", fresh.Modify(QPAttr{State: StateRTR, PathMTU: MTU1024,
			AV: AHAttr{IsGlobal: true, Port: 1, SGIDIndex: 2, HopLimit: 64}}, rtr|MaskMinRNRTimer), inv})
}
