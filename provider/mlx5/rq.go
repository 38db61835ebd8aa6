package mlx5

import (
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A recvQueue is the receive half of a QP. Poll stores the number of completed receives in tail.
type recvQueue struct {
	segments []segment
	ids      []uint64 // WRIDs
	mask     uint32
	shift    uint32  // log2 of the segments of a receive
	stride   uintptr // bytes of a receive
	head     uint32
	limit    uint32 // head must not reach it; computed from tail as last read
	room     uint32 // receives that may be posted at a time
	maxSGE   int
	counter  *uint32 // in the doorbell record
	tail     *uint32
}

func (r *recvQueue) use(ring []byte, ids []uint64, tail *uint32, s *sizes, counter *uint32) {
	r.segments, r.ids, r.tail, r.counter = segmentsOf(ring), ids, tail, counter
	if s.rqCount == 0 {
		return
	}
	r.mask, r.limit, r.room = uint32(s.rqCount)-1, uint32(s.rqRoom), uint32(s.rqRoom)
	r.maxSGE = 1 << s.rqShift / segmentSize
	r.shift, r.stride = uint32(s.rqShift)-segmentShift, 1<<s.rqShift
}

const segmentShift = 4

func (r *recvQueue) reset() {
	r.head, r.limit = 0, r.room
	mmio.Release32(r.tail, 0)
}

func (r *recvQueue) outstanding() int {
	if len(r.ids) == 0 {
		return 0
	}
	return int(r.head - atomic.LoadUint32(r.tail))
}

// list returns the data segments of receive i.
func (r *recvQueue) list(i uint32) []segment { return r.segments[i<<r.shift:][:1<<r.shift] }

// full reports whether there is no room for another receive.
func (r *recvQueue) full() bool {
	r.limit = atomic.LoadUint32(r.tail) + r.room
	return r.head == r.limit
}

// fill writes sgl to a list of data segments and terminates the list. It returns false if sgl is
// too long or names more bytes than a message can have.
func fill(to []segment, sgl []uverbs.SGE) bool {
	if len(sgl) > len(to) {
		return false
	}
	var total uint64
	n := 0
	for i := range sgl {
		g := &sgl[i]
		if g.Length == 0 {
			continue // on the ring, a length of 0 means 2^31
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

// badReceive returns the error for an sgl that fill rejected.
func badReceive(sgl []uverbs.SGE, room int) error {
	if len(sgl) > room {
		return uverbs.ErrTooManySGEs
	}
	return uverbs.ErrRange
}

// recvRest continues a PostRecv that has written n receives but not published them.
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
