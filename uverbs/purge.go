package uverbs

import "github.com/goverbs/goverbs/internal/driver"

// purgeCQs drops the unpolled completions of q. The caller may hold locks of the
// QP: the lock of a CQ is acquired after them, never before.
func (q *QP) purgeCQs() {
	if q.cfg.RecvCQ != nil {
		q.cfg.RecvCQ.purge(q.impl)
	}
	if q.cfg.SendCQ != nil && q.cfg.SendCQ != q.cfg.RecvCQ {
		q.cfg.SendCQ.purge(q.impl)
	}
}

// purge drops the unpolled completions of a queue that has been destroyed or
// emptied.
func (q *CQ) purge(gone any) {
	p, ok := q.impl.(driver.Purger)
	if !ok {
		return
	}
	q.lock()
	defer q.unlock()
	if !q.dead.Load() {
		p.Purge(gone)
	}
}

// pollError returns the error of a failed poll. While the Context is being closed,
// it is ErrClosed: completions may then belong to QPs that no longer exist.
func (q *CQ) pollError(err error) error {
	if q.ctx.ending.Load() {
		return ErrClosed
	}
	return err
}
