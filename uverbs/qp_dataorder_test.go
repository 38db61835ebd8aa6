package uverbs

import (
	"errors"
	"testing"
)

// An orderly is a provider's QP that guarantees an order of data.
type orderly struct {
	providerQP
	order map[Opcode]DataOrder
}

func (o orderly) DataInOrder(opcode uint8) uint32 { return uint32(o.order[Opcode(opcode)]) }

func TestDataInOrder(t *testing.T) {
	qp := newRig(t).bundle(t, false).qp
	if o := good(qp.DataInOrder(OpSend))(t); o != 0 {
		t.Errorf("a device that says nothing: %v", o)
	}
	impl := orderly{qp.impl, map[Opcode]DataOrder{OpWrite: WholeInOrder, OpRead: Aligned128InOrder}}
	for op, want := range map[Opcode]DataOrder{
		OpWrite: WholeInOrder | Aligned128InOrder, OpRead: Aligned128InOrder, OpSend: 0} {
		if o := dataOrder(impl, op, "amd64"); o != want {
			t.Errorf("%v: %v, want %v", op, o, want)
		}
		if o := dataOrder(impl, op, "arm64"); o != 0 {
			t.Errorf("%v on arm64: %v", op, o)
		}
	}
	check(t, qp.Close())
	if _, err := qp.DataInOrder(OpSend); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
