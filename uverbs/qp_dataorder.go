package uverbs

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
)

// DataOrder describes in which order the bytes of a message are written to memory. The values
// are those of ibv_query_qp_data_in_order_caps.
type DataOrder uint32

// The guarantees of ibv_query_qp_data_in_order(3).
const (
	WholeInOrder      DataOrder = 1 << 0 // a byte is written before all later bytes of its message
	Aligned128InOrder DataOrder = 1 << 1 // the same within each aligned block of 128 bytes
)

// DataInOrder returns the guarantees for data that an operation writes to this process's
// memory: ibv_query_qp_data_in_order(3). It applies to READs posted on this QP, and to WRITEs
// and SENDs of its peer. If bytes are written in order, a program may poll memory instead of
// waiting for completions. The guarantees do not apply to memory with RelaxedOrdering.
//
// The result is 0, no guarantee, on devices that give none, such as rxe, and on processors
// other than amd64. DataInOrder returns [ErrClosed] after Close.
func (q *QP) DataInOrder(op Opcode) (DataOrder, error) {
	q.stateMu.Lock() // makes Close wait
	defer q.stateMu.Unlock()
	if q.sendGate.Load() == gateClosed {
		return 0, named("query data order", q.String(), ErrClosed)
	}
	return dataOrder(q.impl, op, runtime.GOARCH), nil
}

func dataOrder(impl providerQP, op Opcode, arch string) DataOrder {
	p, ok := impl.(driver.DataOrder)
	if !ok || arch != "amd64" {
		return 0
	}
	o := DataOrder(p.DataInOrder(uint8(op)))
	if o&WholeInOrder != 0 {
		o |= Aligned128InOrder
	}
	return o
}
