package mlx5

import (
	"math/bits"
	"runtime"
	"unsafe"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// PostRecv implements driver.QP. The device reads the doorbell record when a message
// arrives. The loop handles receives of one buffer and calls no functions, as in
// send_fast_unsafe.go.
//
//go:nosplit
func (q *qp) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	r := &q.rq
	head := r.head
	for n := range wrs {
		wr := &wrs[n]
		if head == r.limit || len(wr.SGL) != 1 {
			r.head = head
			return q.recvRest(wrs, n)
		}
		sge := &wr.SGL[0]
		length := sge.Length
		if length-1 >= uverbs.MaxMessage-1 {
			r.head = head
			return q.recvRest(wrs, n)
		}
		i := uintptr(head & r.mask)
		g := (*[2]segment)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.segments)), i*r.stride))
		g[0][0] = bits.ReverseBytes64(uint64(length)<<32 | uint64(sge.LKey))
		g[0][1] = bits.ReverseBytes64(sge.Addr)
		*(*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.ids)), i*8)) = wr.WRID
		if r.shift > 0 {
			g[1] = segment{bits.ReverseBytes64(invalidLKey), 0}
		}
		head++
	}
	r.head = head
	mmio.Publish32BE(r.counter, head&0xffff)
	runtime.KeepAlive(q)
	return len(wrs), nil
}
