package uverbs

// purgeCQs drops completions of requests that are gone. The lock of a CQ is
// taken under those of a QP, never the other way round.
func (q *QP) purgeCQs() {
	if q.cfg.RecvCQ != nil {
		q.cfg.RecvCQ.purge(q.impl)
	}
	if q.cfg.SendCQ != nil && q.cfg.SendCQ != q.cfg.RecvCQ {
		q.cfg.SendCQ.purge(q.impl)
	}
}

// purge drops what has been completed of a queue that is gone, or emptied.
func (q *CQ) purge(gone any) {
	p, ok := q.impl.(ProviderPurger)
	if !ok {
		return
	}
	q.lock()
	defer q.unlock()
	if !q.dead.Load() {
		p.Purge(gone)
	}
}

// pollError is why a poll fails. While the Context is being closed, completions
// may be about QPs that are gone already.
func (q *CQ) pollError(err error) error {
	if q.ctx.ending.Load() {
		return ErrClosed
	}
	return err
}
