package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/loop"
)

// A flusher is a receive queue, of a queue pair or of raw Ethernet.
type flusher interface {
	failed() bool           // it still is in its error state
	flushReceives() uint16  // it is how many requests there were
	rank() (kind, n uint32) // their order
}

// A watch looks after receive queues in their error state: requests that are
// posted to them are flushed, but nobody rings for them. It looks less and less
// often, and not at all after a while in which it has found nothing and the host
// has rung no doorbell, see HCA.Store. With the next one it begins again.
type watch struct {
	hca     *HCA
	queues  map[flusher]bool
	timer   *loop.Timer // nil: it has given up
	delay   time.Duration
	quiet   time.Duration // for how long there was nothing
	stirred bool          // the host has rung a doorbell
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
	w.delay, w.quiet, w.stirred = watchFirst, 0, false
	w.timer = w.hca.config.Loop.After(w.delay, w.look)
}

// stir tells of a doorbell of the host's.
func (w *watch) stir() {
	if w.stirred = true; w.timer == nil && len(w.queues) > 0 {
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
			w.stirred = q.flushReceives() > 0 || w.stirred
		} else {
			delete(w.queues, q)
		}
	}
	if w.quiet += w.delay; w.stirred {
		w.quiet = 0
	}
	if len(w.queues) == 0 || w.quiet >= watchQuiet {
		return
	}
	w.stirred = false
	w.delay = min(2*w.delay, watchLast)
	w.timer = w.hca.config.Loop.After(w.delay, w.look)
}

func (qp *QP) failed() bool           { return qp.state == Err && qp.alive() }
func (qp *QP) rank() (kind, n uint32) { return 0, qp.Number }

func (q *RQ) failed() bool           { return q.state == QueueError && q.hca.eth.rqs.objects[q.Number] == q }
func (q *RQ) rank() (kind, n uint32) { return 1, q.Number }
