package cm

import "sync"

// A destination is where the events of an id are read: sync or channel. While the id
// moves from one to the other, its events are collected in deferred.
type destination struct {
	sync.Mutex
	sync     *SyncID
	channel  *EventChannel
	moving   bool
	deferred []*record
}

// syncID returns the id's SyncID. It is nil for an asynchronous id.
func (id *ID) syncID() *SyncID {
	id.dest.Lock()
	defer id.dest.Unlock()
	return id.dest.sync
}

// forward passes an event to the destination of the id's events.
func (id *ID) forward(r *record) {
	id.dest.Lock()
	refused, why := id.deliver(r)
	id.dest.Unlock()
	if refused {
		r.discard(why)
	}
}

// deliver adds an event to the destination of the id's events, or reports that the
// request must be rejected, and why. The caller holds id.dest.
func (id *ID) deliver(r *record) (refused bool, why error) {
	switch {
	case id.dest.moving:
		id.dest.deferred = append(id.dest.deferred, r)
	case id.dest.sync != nil:
		return id.dest.sync.push(r)
	default:
		id.dest.channel.push(r)
	}
	return false, nil
}

// claim reports whether the reader of ch must process an event. Otherwise it passes
// the event on. If waited is set, the event was pending in ch, and may have moved
// with its id.
func (id *ID) claim(ch *EventChannel, r *record, waited bool) bool {
	id.dest.Lock()
	defer id.dest.Unlock()
	if waited {
		return len(ch.removePending(func(w *record) bool { return w == r })) > 0
	}
	// Pending events are older.
	if !id.dest.moving && id.dest.channel == ch && !ch.hasPending(id) {
		return true
	}
	id.deliver(r) // it is not a request: an id that listens does not move
	return false
}
