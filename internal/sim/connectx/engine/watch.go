package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
)

// A flusher is a receive queue, of a queue pair or raw Ethernet.
type flusher interface {
	failed() bool           // failed reports whether it is still in its error state
	flushReceives() uint16  // flushReceives returns the number of flushed requests
	rank() (kind, n uint32) // rank orders flushers
}

// A watch polls receive queues in their error state, because posting to them
// has no doorbell. It polls at growing intervals, and stops when nothing was
// posted and the host has rung no doorbell for a while: see HCA.Store. The next
// doorbell starts it again.
type watch struct {
	hca       *HCA
	queues    map[flusher]bool
	timer     *loop.Timer // nil while stopped
	delay     time.Duration
	quiet     time.Duration // how long nothing was posted
	doorbells bool          // the host has rung a doorbell
}

const (
	watchFirst = 100 * time.Microsecond
	watchLast  = 50 * time.Millisecond
	watchQuiet = 5 * time.Second
)

func (w *watch) add(q flusher) {
	if w.queues == nil {
		w.queues = make(map[flusher]bool)
	}
	w.queues[q] = true
	w.timer.Stop()
	w.begin()
}

func (w *watch) begin() {
	w.delay, w.quiet, w.doorbells = watchFirst, 0, false
	w.timer = w.hca.config.Loop.After(w.delay, w.look)
}

// wake records a doorbell of the host.
func (w *watch) wake() {
	if w.doorbells = true; w.timer == nil && len(w.queues) > 0 {
		w.begin()
	}
}

func (w *watch) look() {
	w.timer = nil
	order := func(a, b flusher) int {
		kindA, a32 := a.rank()
		kindB, b32 := b.rank()
		return cmp.Or(cmp.Compare(kindA, kindB), cmp.Compare(a32, b32))
	}
	for _, q := range slices.SortedFunc(maps.Keys(w.queues), order) {
		if q.failed() {
			w.doorbells = q.flushReceives() > 0 || w.doorbells
		} else {
			delete(w.queues, q)
		}
	}
	if w.quiet += w.delay; w.doorbells {
		w.quiet = 0
	}
	if len(w.queues) == 0 || w.quiet >= watchQuiet {
		return
	}
	w.doorbells = false
	w.delay = min(2*w.delay, watchLast)
	w.timer = w.hca.config.Loop.After(w.delay, w.look)
}

func (qp *QP) failed() bool           { return qp.state == Err && qp.alive() }
func (qp *QP) rank() (kind, n uint32) { return 0, qp.Number }

func (q *RQ) failed() bool           { return q.state == QueueError && q.hca.eth.rqs.objects[q.Number] == q }
func (q *RQ) rank() (kind, n uint32) { return 1, q.Number }
