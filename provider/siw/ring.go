package siw

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// The sizes of the elements, in words of 8 bytes. In each, the first word is the WRID and the second begins with the
// flags.
const (
	sqeWords     = 15 // struct siw_sqe: remote address, 6 SGEs
	rqeWords     = 14 // struct siw_rqe: 6 SGEs
	cqeWords     = 4  // struct siw_cqe: immediate data, QPN
	controlWords = 1  // struct siw_cq_ctrl, after the last CQE
)

// valid is the flag of elements that the other side may read.
const valid = uapi.SIW_WQE_VALID

// A queue is a send or receive queue: a ring of elements whose flags say who owns them. An element with the flag valid
// is the kernel's, which clears the flags when it has copied the element.
type queue struct {
	mem     provider.Mapping
	words   []uint64
	pending []uint64 // the second words of elements that are written, but not published
	stride  uint32   // words of an element
	mask    uint32   // number of elements - 1
	cur     uint32   // elements published so far

	// For the end of the QP: see flush.go.
	cq    *cq
	owner *uverbs.CQ
	qpn   uint32
	ended atomic.Bool
	tail  uint32 // the element that is flushed next, guarded by the mutex of the CQ
}

// use sets the memory of n elements.
func (q *queue) use(words []uint64, n, stride uint32) {
	q.words, q.pending, q.stride, q.mask = words, make([]uint64, n), stride, n-1
}

// attach sets the CQ.
func (q *queue) attach(cq *cq, owner *uverbs.CQ) { q.cq, q.owner = cq, owner }

// there reports whether the QP has the queue.
func (q *queue) there() bool { return q.words != nil }

// element returns the words of element i.
func (q *queue) element(i uint32) []uint64 {
	at := (i & q.mask) * q.stride
	return q.words[at : at+q.stride : at+q.stride]
}

func (q *queue) flags(i uint32) *uint64 { return &q.words[(i&q.mask)*q.stride+1] }

// waits reports whether the kernel, or in ERR the CQ, has yet to process element i.
func (q *queue) waits(i uint32) bool { return atomic.LoadUint64(q.flags(i))&valid != 0 }

// release returns element i to the poster.
func (q *queue) release(i uint32) { atomic.StoreUint64(q.flags(i), 0) }

// full reports whether there is no room for element i, the next to be written.
func (q *queue) full(i uint32) bool { return i-q.cur > q.mask || q.waits(i) }

// setSGEs writes SGEs to the element's words from at on, and returns their number and total length. It leaves out empty
// ones: in a send, Linux 6.12 crashes when it finds one before others (siw_tx_hdt).
func setSGEs(element []uint64, at int, sgl []uverbs.SGE) (n int, total uint64) {
	for k := range sgl {
		s := &sgl[k]
		if s.Length == 0 {
			continue
		}
		element[at+2*n] = s.Addr
		element[at+2*n+1] = uint64(s.Length) | uint64(s.LKey)<<32
		n++
		total += uint64(s.Length)
	}
	return n, total
}

// publish makes the elements before to visible to the kernel.
func (q *queue) publish(to uint32) {
	for ; q.cur != to; q.cur++ {
		atomic.StoreUint64(q.flags(q.cur), q.pending[q.cur&q.mask])
	}
	if q.ended.Load() {
		q.wake()
	}
}

// outstanding returns the number of elements that the kernel has not copied. Of a QP in ERR it has copied all that it
// ever will.
func (q *queue) outstanding() (n int) {
	if !q.there() || q.ended.Load() {
		return 0
	}
	for n <= int(q.mask) && q.waits(q.cur-uint32(n)-1) {
		n++
	}
	return n
}

// wake makes waiters look at the CQ.
func (q *queue) wake() {
	if q.owner != nil {
		driver.WakeCQ(q.owner)
	}
}

func badRing(kind string, n uint32) error {
	return &uverbs.Error{Op: "map " + kind, Kind: uverbs.ErrABI,
		Detail: fmt.Sprintf("the kernel's ring is none that this library knows: %d elements", n)}
}
