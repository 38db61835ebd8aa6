package mlx5

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A recvQueue is the receive half of a QP. Poll stores how many receives are
// over to tail.
type recvQueue struct {
	segments []segment
	ids      []uint64 // WRIDs
	mask     uint32
	shift    uint32  // log2 of the segments of a receive
	stride   uintptr // bytes of a receive
	head     uint32
	limit    uint32 // head must not reach it, as of the last look at tail
	maxSGE   int
	counter  *uint32 // the doorbell record's
	tail     *uint32
}

func (r *recvQueue) use(ring []byte, ids []uint64, tail *uint32, s *sizes, counter *uint32) {
	r.segments, r.ids, r.tail, r.counter = segmentsOf(ring), ids, tail, counter
	if s.rqCount == 0 {
		return
	}
	r.mask, r.limit = uint32(s.rqCount)-1, uint32(s.rqCount)
	r.maxSGE = 1 << s.rqShift / segmentSize
	r.shift, r.stride = uint32(s.rqShift)-segmentShift, 1<<s.rqShift
}

const segmentShift = 4

func (r *recvQueue) reset() {
	r.head, r.limit = 0, uint32(len(r.ids))
	mmio.Release32(r.tail, 0)
}

func (r *recvQueue) outstanding() int {
	if len(r.ids) == 0 {
		return 0
	}
	return int(r.head - atomic.LoadUint32(r.tail))
}

// list is where the data segments of receive i are.
func (r *recvQueue) list(i uint32) []segment { return r.segments[i<<r.shift:][:1<<r.shift] }

// full tells whether there is no room for one more receive.
func (r *recvQueue) full() bool {
	r.limit = atomic.LoadUint32(r.tail) + uint32(len(r.ids))
	return r.head == r.limit
}

// fill writes a list of data segments, of room at most, and what ends it. It
// reports false when there is something wrong with sgl.
func fill(to []segment, sgl []uverbs.SGE) bool {
	if len(sgl) > len(to) {
		return false
	}
	var total uint64
	n := 0
	for i := range sgl {
		g := &sgl[i]
		if g.Length == 0 {
			continue // to the device it would be 2^31
		}
		total += uint64(g.Length)
		to[n] = segment{be2(g.Length&^inlineMark, g.LKey), be(g.Addr)}
		n++
	}
	if n < len(to) {
		to[n] = segment{be2(0, invalidLKey), 0}
	}
	return total <= uverbs.MaxMessage
}

// badReceive says what is wrong with sgl.
func badReceive(sgl []uverbs.SGE, room int) error {
	if len(sgl) > room {
		return uverbs.ErrTooManySGEs
	}
	return uverbs.ErrRange
}

// recvRest goes on with a PostRecv that has written n receives, and told of none.
//
//go:noinline
func (q *qp) recvRest(wrs []uverbs.RecvWR, n int) (int, error) {
	k, err := q.rq.post(wrs[n:])
	runtime.KeepAlive(q)
	return n + k, err
}

// post writes wrs to the ring and publishes all up to the first bad one.
func (r *recvQueue) post(wrs []uverbs.RecvWR) (int, error) {
	if len(r.ids) == 0 {
		return 0, uverbs.ErrSRQ
	}
	var err error
	n := 0
	for ; n < len(wrs); n++ {
		if r.head == r.limit && r.full() {
			err = uverbs.ErrQueueFull
			break
		}
		i := r.head & r.mask
		if sgl := wrs[n].SGL; !fill(r.list(i), sgl) {
			err = badReceive(sgl, r.maxSGE)
			break
		}
		r.ids[i] = wrs[n].WRID
		r.head++
	}
	mmio.Publish32BE(r.counter, r.head&0xffff)
	return n, err
}
