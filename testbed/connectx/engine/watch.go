package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/loop"
)

// A watch looks after queue pairs in their error state: receive requests that are
// posted to them are flushed, but nobody rings for them. It looks less and less
// often, and not at all after a while in which it has found nothing and the host
// has not stored to any register. With the next store it begins again.
type watch struct {
	hca     *HCA
	qps     map[*QP]bool
	timer   *loop.Timer // nil: it has given up
	delay   time.Duration
	quiet   time.Duration // for how long there was nothing
	stirred bool          // the host has stored to a register
}

const (
	watchFirst = 100 * time.Microsecond
	watchLast  = 50 * time.Millisecond
	watchQuiet = 5 * time.Second
)

func (w *watch) add(qp *QP) {
	if qp.Source != FromRQ || qp.recvCQ == nil {
		return
	}
	if w.qps == nil {
		w.qps = make(map[*QP]bool)
	}
	w.qps[qp] = true
	w.timer.Stop()
	w.begin()
}

func (w *watch) begin() {
	w.delay, w.quiet, w.stirred = watchFirst, 0, false
	w.timer = w.hca.config.Loop.After(w.delay, w.look)
}

// stir tells of a store of the host's.
func (w *watch) stir() {
	if w.stirred = true; w.timer == nil && len(w.qps) > 0 {
		w.begin()
	}
}

func (w *watch) look() {
	w.timer = nil
	order := func(a, b *QP) int { return cmp.Compare(a.Number, b.Number) }
	for _, qp := range slices.SortedFunc(maps.Keys(w.qps), order) {
		if qp.state == Err && qp.alive() {
			w.stirred = qp.flushReceives() > 0 || w.stirred
		} else {
			delete(w.qps, qp)
		}
	}
	if w.quiet += w.delay; w.stirred {
		w.quiet = 0
	}
	if len(w.qps) == 0 || w.quiet >= watchQuiet {
		return
	}
	w.stirred = false
	w.delay = min(2*w.delay, watchLast)
	w.timer = w.hca.config.Loop.After(w.delay, w.look)
}
