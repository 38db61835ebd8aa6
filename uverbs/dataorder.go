package uverbs

import "runtime"

// DataOrder says how the bytes of a message appear in memory. The values are
// those of ibv_query_qp_data_in_order_caps.
type DataOrder uint32

// The guarantees of ibv_query_qp_data_in_order(3).
const (
	WholeInOrder      DataOrder = 1 << 0 // a byte is there when a later one of its message is
	Aligned128InOrder DataOrder = 1 << 1 // so in each block of 128 bytes, at a multiple of 128
)

// A ProviderDataOrder is a ProviderQP that gives guarantees.
type ProviderDataOrder interface {
	DataInOrder(op Opcode) DataOrder
}

// DataInOrder tells what is guaranteed of the data of an operation that arrives
// in this process' memory, of READs posted on this QP, and of WRITEs and SENDs
// of its peer: ibv_query_qp_data_in_order(3). Where a byte is there when a later
// one is, a program may look at memory instead of waiting for completions. It
// is not so for memory with RelaxedOrdering.
//
// The answer is 0, no guarantee, of a device that gives none, such as rxe, and
// on processors other than amd64. [ErrClosed] after Close.
func (q *QP) DataInOrder(op Opcode) (DataOrder, error) {
	q.stateMu.Lock() // Close waits
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return 0, ErrClosed
	}
	return dataOrder(q.impl, op, runtime.GOARCH), nil
}

func dataOrder(impl ProviderQP, op Opcode, arch string) DataOrder {
	p, ok := impl.(ProviderDataOrder)
	if !ok || arch != "amd64" {
		return 0
	}
	o := p.DataInOrder(op)
	if o&WholeInOrder != 0 {
		o |= Aligned128InOrder
	}
	return o
}
