package cm

import "sync"

// drop does what an event leaves to do that nobody will hear of: a request is
// refused, for its listener has been closed, or has enough of them. It does not
// wait for that.
func (r *record) drop() {
	if r.typ() == EventConnectRequest {
		r.node.refusals.add(r)
	}
}

// refuse refuses a request, and waits until the kernel has done it.
func (r *record) refuse() {
	if r.typ() == EventConnectRequest {
		_, _ = r.node.file.DestroyID(r.raw.Id) // should it fail, the id goes with the node
	}
}

// refusals are requests to be refused. A goroutine does it as long as there are
// any: whoever reads events must not wait for the kernel.
type refusals struct {
	mu    sync.Mutex
	queue []*record
	idle  chan struct{} // closed when the goroutine ends; nil while there is none
}

func (q *refusals) add(r *record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// The reader of a channel uses its record again.
	q.queue = append(q.queue, &record{node: r.node, raw: r.raw})
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
}

func (q *refusals) run() {
	for all := q.take(); len(all) > 0; all = q.take() {
		for _, r := range all {
			r.refuse()
		}
	}
}

// take takes what waits. When that is nothing, the goroutine ends.
func (q *refusals) take() []*record {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.queue
	q.queue = nil
	if len(all) == 0 {
		close(q.idle)
		q.idle = nil
	}
	return all
}

// wait waits until all have been refused.
func (q *refusals) wait() {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
