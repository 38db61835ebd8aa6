package siw

import "github.com/goverbs/goverbs/uverbs"

// This file has the requests that siw leaves in the rings of a QP in ERR.
//
// When a QP moves to ERR, the kernel completes what is in its rings, and from then on it reads them no more. It may do
// so on its own, when the connection breaks: requests that are posted until the program moves the QP to ERR, too, would
// never complete, and neither would later ones. So from then on the CQs take such requests from the rings. The kernel's
// completions of the QP come first: they are in the CQ's ring when Modify returns.

// end is called when the QP is in ERR and no post is running.
func (q *queue) end() {
	if !q.there() || q.ended.Load() {
		return
	}
	n := uint32(q.outstanding())
	q.tail = q.cur - n
	q.ended.Store(true)
	if q.cq == nil {
		return
	}
	q.cq.enlist(q)
	if n > 0 {
		q.wake()
	}
}

// flushed removes the oldest request of a queue that has ended. The caller holds the mutex of the CQ.
func (q *queue) flushed(wc *uverbs.WC) bool {
	if !q.waits(q.tail) {
		return false
	}
	*wc = uverbs.WC{WRID: q.element(q.tail)[0], Status: uverbs.WCWRFlushErr, QPNum: q.qpn}
	q.release(q.tail)
	q.tail++
	return true
}

// enlist adds a queue that has ended.
func (c *cq) enlist(q *queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, q)
	c.some.Store(true)
}

// drop removes a queue whose memory is released next.
func (c *cq) drop(q *queue) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range c.ended {
		if e == q {
			c.ended = append(c.ended[:i], c.ended[i+1:]...)
			break
		}
	}
	c.some.Store(len(c.ended) > 0)
}

// flush fills in the completions of requests in queues that have ended.
func (c *cq) flush(wcs []uverbs.WC) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.ended {
		for n < len(wcs) && q.flushed(&wcs[n]) {
			n++
		}
	}
	return n
}

// unflushed reports whether flush would return a completion.
func (c *cq) unflushed() bool {
	if !c.some.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.ended {
		if q.waits(q.tail) {
			return true
		}
	}
	return false
}
