package cm

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/uverbs"
)

// A SyncID is an [ID] whose calls wait for their result: rdma_create_id(3) without a
// channel. All SyncIDs share one descriptor, and none needs its own thread. Its
// methods may be called concurrently. The methods that do not wait are those of the
// ID.
//
// If the connection manager's node fails, for example because the process has changed
// its credentials, the end of a connection remains unknown. Calls that wait then return
// the error of [SyncID.Err].
//
// If a context ends a call, the state of the id is unknown: later calls that wait
// return an error, and the id must be closed. This does not apply to GetRequest and
// Disconnect.
//
// When the peer ends the connection, the library replies to it and moves the QP to
// state ERR, where the posted requests are flushed. Before, outstanding sends have up
// to 200 ms to be acknowledged. [ID.SendComp] and [ID.RecvComp] then return
// [ErrDisconnected] for each flushed request, and for every further call once their
// queue is empty. Posts of sends return it too. An open [uverbs.SendBatch] delays the
// flush, but the calls return the error after at most 1.2 s. A QP that was created with
// SingleGoroutine is not changed: the program must call Disconnect. The loss of a
// membership in a group ends the id in the same way.
type SyncID struct {
	*ID
	pump *pump

	mu           sync.Mutex
	queue        []*record
	changed      chan struct{} // closed when the queue or the end of the id has changed
	lastEvent    *Event
	canceledCall string        // the call that was ended by its context: its result may still arrive
	stopCause    error         // why no more events arrive at a usable id: it was migrated, or the pump failed
	done         chan struct{} // closed when no more events can arrive
	ackWait      time.Duration // how long outstanding sends may wait after the end of the connection
	backlog      int           // the maximum number of waiting requests
	request      requestConfig
}

// maxBacklog is the kernel's maximum.
const maxBacklog = 1024

// kernelBacklog returns the number of requests that the kernel keeps for a backlog.
func kernelBacklog(backlog int) int {
	if backlog <= 0 {
		return maxBacklog
	}
	return min(backlog, maxBacklog)
}

// requestConfig is the configuration of a listener's new ids: see [CreateEP].
type requestConfig struct {
	createQP bool
	pd       *uverbs.PD
	qp       uverbs.QPConfig
}

func newSync(id *ID) *SyncID {
	return &SyncID{ID: id, changed: make(chan struct{}), done: make(chan struct{}), backlog: maxBacklog, ackWait: ackWait}
}

// push adds an event to the queue, or reports that the request must be rejected. The
// end of the connection affects all waiting calls, and no call removes it from the
// queue: it is kept for the event channel that the id may move to. Requests are read at
// once, so that the kernel cannot apply the backlog: push does, and returns why. It runs
// in a pump and issues no command.
func (s *SyncID) push(r *record) (refused bool, why error) {
	switch r.typ() {
	case EventAddrChange, EventTimewaitExit, EventUser, eventInternal:
		return false, nil // no call waits for these
	}
	s.mu.Lock()
	ends := !r.terminal && s.isTerminal(r) // the event may have ended an earlier SyncID of the id
	r.terminal = r.terminal || ends
	switch {
	case isRequest(r) && s.eventErr() != nil:
		refused = true
	case isRequest(r) && s.requestCount() >= s.backlog:
		refused, why = true, backlogError(s.backlog)
	default:
		s.queue = append(s.queue, r)
		s.broadcast()
	}
	s.mu.Unlock()
	if ends {
		s.terminate(r)
	}
	return refused, why
}

// isTerminal reports whether an event ends the connection. If the connection is
// already established, a rejection does: the peer went away before it was notified.
// The loss of a joined group ends the id too.
func (s *SyncID) isTerminal(r *record) bool {
	if r.mc != nil {
		return r.typ() == EventMulticastError && r.mc.joined.Load()
	}
	switch r.typ() {
	case EventDisconnected, EventDeviceRemoval:
		return true
	case EventRejected, EventUnreachable, EventConnectError:
		return s.connected()
	}
	return false
}

// requestCount returns the number of waiting requests. The caller holds s.mu.
func (s *SyncID) requestCount() (n int) {
	for _, r := range s.queue {
		if isRequest(r) {
			n++
		}
	}
	return n
}

// setBacklog sets the maximum number of waiting requests.
func (s *SyncID) setBacklog(backlog int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backlog = backlog
}

// terminate handles an event that ends the id.
func (s *SyncID) terminate(r *record) {
	e := &Event{Type: r.typ(), subject: subject{name: s.name()}}
	switch {
	case r.mc != nil:
		e.Status, e.subject = int(int32(r.raw.Status)), subject{name: r.mc.name}
	case e.Type != EventDeviceRemoval:
		e.Type = EventDisconnected
	}
	s.life.end(phaseEnded, e.Err())
	s.stopSends()
	s.closeDone()
	// Use a goroutine: ID.mu and the QP's lock may be held for long.
	go s.completeDisconnect(e.Type, s.ackWait)
}

// terminateQueued checks whether the queue has the event that ends the connection:
// it may have arrived before the connection was known to be established.
func (s *SyncID) terminateQueued() {
	var r *record
	s.mu.Lock()
	if k := slices.IndexFunc(s.queue, func(r *record) bool { return !r.terminal && s.isTerminal(r) }); k >= 0 {
		r = s.queue[k]
		r.terminal = true
	}
	s.mu.Unlock()
	if r != nil {
		s.terminate(r)
	}
}

// broadcast wakes all waiters. The caller holds s.mu.
func (s *SyncID) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// eventErr returns why no more events can arrive, or nil if they can. The caller
// holds s.mu.
func (s *SyncID) eventErr() error {
	if s.stopCause != nil {
		return s.stopCause
	}
	return s.life.endCause()
}

// stopEvents stops the events of an id that remains usable.
func (s *SyncID) stopEvents(why error) {
	s.mu.Lock()
	if s.eventErr() == nil {
		s.stopCause = why
	}
	s.mu.Unlock()
	s.closeDone()
}

// stopWaits makes SendComp and RecvComp of an id whose events were stopped return the
// cause. The id cannot be notified of the end of its connection.
func (s *SyncID) stopWaits() {
	s.mu.Lock()
	why := s.stopCause
	s.mu.Unlock()
	if why != nil && s.life.err() == nil {
		s.setCQWaits(why)
	}
}

// closeDone wakes all waiters because no more events can arrive: see eventErr.
// Queued events can still be read.
func (s *SyncID) closeDone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	s.broadcast()
}

// removeAll removes and returns the queued events.
func (s *SyncID) removeAll() []*record {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}

// Err returns why the id cannot be used any more, or nil if it can: see [ID.Err].
// When the channel of [SyncID.Disconnected] is closed, it is not nil. In addition to
// the reasons of ID.Err, it returns [uverbs.ErrClosed] after a migration to an event
// channel and [uverbs.ErrDeviceGone] if the connection manager's node has failed.
func (s *SyncID) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopCause != nil {
		return s.stopCause
	}
	return s.life.err()
}

// nextFit waits for an event that fits. It leaves other events in the queue.
func (s *SyncID) nextFit(ctx context.Context, fits func(*record) bool) (*record, error) {
	for {
		r, fresh, err := s.tryNext(fits)
		if r != nil || err != nil {
			return r, err
		}
		select {
		case <-fresh:
		case <-ctx.Done():
			return nil, ctxerr.Of(ctx)
		}
	}
}

// tryNext removes and returns an event that fits. If there is none, it returns a
// channel that is closed when the queue changes, or the reason why no more events can
// arrive.
func (s *SyncID) tryNext(fits func(*record) bool) (*record, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := slices.IndexFunc(s.queue, func(r *record) bool { return !r.terminal && fits(r) }); k >= 0 {
		r := s.queue[k]
		s.queue = slices.Delete(s.queue, k, k+1)
		return r, nil, nil
	}
	return nil, s.changed, s.eventErr()
}

// oneOf fits events of the id itself that have one of these types.
func oneOf(types ...EventType) func(*record) bool {
	return func(r *record) bool { return r.mc == nil && slices.Contains(types, r.typ()) }
}

// These functions select the events that end each call.
var (
	addrResults    = oneOf(EventAddrResolved, EventAddrError)
	routeResults   = oneOf(EventRouteResolved, EventRouteError)
	serviceResults = oneOf(EventAddrinfoResolved, EventAddrinfoError)
	connectResults = oneOf(EventEstablished, EventConnectResponse, EventConnectError, EventUnreachable, EventRejected)
	isRequest      = oneOf(EventConnectRequest)
)

// Disconnected returns a channel that is closed when the connection has ended, by
// either side or because the device was removed, when the membership in a group was
// lost, and when the id is closed or migrated. [SyncID.Err] returns the reason.
func (s *SyncID) Disconnected() <-chan struct{} { return s.done }
