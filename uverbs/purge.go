package uverbs

// purgeCQs drops completions of requests that are gone. The lock of a CQ is
// taken under those of a QP, never the other way round.
func (q *QP) purgeCQs() {
	q.cfg.RecvCQ.purge(q.impl)
	if q.cfg.SendCQ != q.cfg.RecvCQ {
		q.cfg.SendCQ.purge(q.impl)
	}
}

// purge drops what has been completed of a QP that is gone, or emptied.
func (q *CQ) purge(gone ProviderQP) {
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
