package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/uverbs"
)

// What batch_unsafe.go leaves takes two calls of the builder.

//go:noinline
func (q *qp) moreWriteSGE(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	q.Op(uverbs.OpWrite, f, wrID, raddr, rkey, 0)
	q.SGE(sge)
	runtime.KeepAlive(q)
}

//go:noinline
func (q *qp) moreSendSGE(f uverbs.SendFlags, wrID uint64, sge uverbs.SGE) {
	q.Op(uverbs.OpSend, f, wrID, 0, 0, 0)
	q.SGE(sge)
	runtime.KeepAlive(q)
}

func (q *qp) ReadSGE(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, sge uverbs.SGE) {
	q.Op(uverbs.OpRead, f, wrID, raddr, rkey, 0)
	q.SGE(sge)
}

//go:noinline
func (q *qp) moreWriteInline(f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	q.Op(uverbs.OpWrite, f, wrID, raddr, rkey, 0)
	q.Inline(data)
	runtime.KeepAlive(q)
}

//go:noinline
func (q *qp) moreSendInline(f uverbs.SendFlags, wrID uint64, data []byte) {
	q.Op(uverbs.OpSend, f, wrID, 0, 0, 0)
	q.Inline(data)
	runtime.KeepAlive(q)
}
