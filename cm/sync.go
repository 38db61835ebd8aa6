package cm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A SyncID is an [ID] whose calls wait for what they ask for: rdma_create_id(3)
// without a channel. It takes no descriptor and no thread of its own: one
// descriptor serves all of them. Its methods may be called from any number of
// goroutines. The calls that do not wait are those of the ID.
//
// A call that its context ends leaves the id in the middle of something: calls
// that wait are refused then, and the id is to be closed. GetRequest and
// Disconnect are the exceptions.
//
// When the peer ends the connection, it is answered, and the QP moves to the
// error state, where what is posted is flushed; sends that are under way have a
// fifth of a second to be acknowledged before. A QP that was made with
// SingleGoroutine is left alone: there the program has to call Disconnect. The
// loss of a group that was joined ends the id in the same way.
type SyncID struct {
	*ID
	pump *pump

	mu      sync.Mutex
	queue   []*record
	fresh   chan struct{} // closed when there is more in the queue, or the end has come
	last    *Event
	err     error  // no event will come any more
	gaveUp  string // the call that its context ended
	stands  bool   // the connection
	over    bool   // gone is closed
	gone    chan struct{}
	moment  time.Duration // that sends under way have after the end
	backlog int           // how many requests wait here at most
	request requestConfig
}

// maxBacklog is the kernel's.
const maxBacklog = 1024

// requestConfig is what a listener's new ids get: see [CreateEP].
type requestConfig struct {
	wanted bool
	pd     *uverbs.PD
	qp     uverbs.QPConfig
}

// NewID makes a synchronous id: rdma_create_id(3). Its QP will be RC in PSTCP
// and PSIB, UD otherwise. The errors are those of [NewIDFor].
func NewID(ps PortSpace) (*SyncID, error) { return NewIDFor(ps, ps.qpType()) }

// NewIDFor is NewID for a QP of another type than the usual one, in PSIB. The
// errors are those of [EventChannel.CreateIDFor] and [NewEventChannel].
func NewIDFor(ps PortSpace, typ uverbs.QPType) (*SyncID, error) {
	i, err := newID(ps, typ)
	if err != nil {
		return nil, err
	}
	s := newSync(i)
	if err := joinPump(s); err != nil {
		return nil, err
	}
	i.to.sync = s
	if err := i.create(&s.pump.node); err != nil {
		return nil, errors.Join(err, s.pump.leave(s))
	}
	return s, nil
}

func newSync(i *ID) *SyncID {
	return &SyncID{ID: i, fresh: make(chan struct{}), gone: make(chan struct{}), backlog: maxBacklog, moment: time.Second / 5}
}

// push takes an event. The end of the connection is not queued: it concerns
// whatever is waited for. Requests beyond the backlog, which the kernel cannot
// know of as they are read at once, are refused.
func (s *SyncID) push(r *record) {
	switch r.typ() {
	case EventAddrChange, EventTimewaitExit, EventUser, EventInternal:
		return // no call waits for these
	}
	s.mu.Lock()
	ends := s.ends(r)
	refused := requests(r) && (s.err != nil || s.waiting() >= s.backlog)
	if !ends && !refused {
		s.queue = append(s.queue, r)
		s.news()
	}
	s.mu.Unlock()
	switch {
	case ends:
		s.ended(r)
	case refused:
		r.drop()
	}
}

// ends tells whether an event is the end of the connection. Once that stands, a
// rejection is: of a peer that went away before it heard that it does. The loss
// of a group that has been joined ends the id too.
func (s *SyncID) ends(r *record) bool {
	if r.mc != nil {
		return r.typ() == EventMulticastError && r.mc.joined.Load()
	}
	switch r.typ() {
	case EventDisconnected, EventDeviceRemoval:
		return true
	case EventRejected, EventUnreachable, EventConnectError:
		return s.stands
	}
	return false
}

// waiting is how many requests wait. The caller holds s.mu.
func (s *SyncID) waiting() (n int) {
	for _, r := range s.queue {
		if requests(r) {
			n++
		}
	}
	return n
}

// limit says how many requests may wait.
func (s *SyncID) limit(backlog int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backlog = backlog
	if backlog == 0 {
		s.backlog = maxBacklog
	}
}

// ended is the end of the connection.
func (s *SyncID) ended(r *record) {
	e := &Event{Type: r.typ(), object: "the connection"}
	switch {
	case r.mc != nil:
		e.Status, e.object = int(int32(r.raw.Status)), r.mc.name
	case e.Type != EventDeviceRemoval:
		e.Type = EventDisconnected
	}
	why := e.Err()
	s.end(why)
	// Not here: the QP's lock may be held by one who waits for an event.
	go s.ID.hangUp(e.Type, why, s.moment)
}

// settle notes that the connection stands.
func (s *SyncID) settle() {
	s.mu.Lock()
	s.stands = true
	s.mu.Unlock()
	s.late()
}

// late looks for the end among what waits: it may have come before what it ends
// was known to stand.
func (s *SyncID) late() {
	var r *record
	s.mu.Lock()
	if k := slices.IndexFunc(s.queue, s.ends); k >= 0 {
		r = s.queue[k]
		s.queue = slices.Delete(s.queue, k, k+1)
	}
	s.mu.Unlock()
	if r != nil {
		s.ended(r)
	}
}

// news wakes all who wait. The caller holds s.mu.
func (s *SyncID) news() {
	close(s.fresh)
	s.fresh = make(chan struct{})
}

// end notes why no event will come any more, the first reason of several.
// Events that have come can still be taken.
func (s *SyncID) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = why
	}
	if !s.over {
		s.over = true
		close(s.gone)
	}
	s.news()
}

// take ends the SyncID and takes the events that wait in it.
func (s *SyncID) take(why error) []*record {
	s.end(why)
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}

// shut is the SyncID's part of closing the id.
func (s *SyncID) shut(name string) error {
	for _, r := range s.take(closed("wait on", name)) {
		r.refuse()
	}
	return s.pump.leave(s)
}

// next waits for an event that fits, and leaves the others.
func (s *SyncID) next(ctx context.Context, fits func(*record) bool) (*record, error) {
	for {
		s.mu.Lock()
		if k := slices.IndexFunc(s.queue, fits); k >= 0 {
			r := s.queue[k]
			s.queue = slices.Delete(s.queue, k, k+1)
			s.mu.Unlock()
			return r, nil
		}
		fresh, err := s.fresh, s.err
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-fresh:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// oneOf fits events of these types, of the id itself.
func oneOf(types ...EventType) func(*record) bool {
	return func(r *record) bool { return r.mc == nil && slices.Contains(types, r.typ()) }
}

// The answers to each call.
var (
	addrAnswers    = oneOf(EventAddrResolved, EventAddrError)
	routeAnswers   = oneOf(EventRouteResolved, EventRouteError)
	serviceAnswers = oneOf(EventAddrinfoResolved, EventAddrinfoError)
	connectAnswers = oneOf(EventEstablished, EventConnectResponse, EventConnectError, EventUnreachable, EventRejected)
	requests       = oneOf(EventConnectRequest)
)

// begin refuses calls on an id that was left in the middle of something, and
// those whose context has ended: nothing is begun then.
func (s *SyncID) begin(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gaveUp != "" {
		return invalid(op, "id", "its context ended the "+s.gaveUp+" before: close the id and begin with a new one")
	}
	return nil
}

// answer waits for the answer to a call, and processes it.
func (s *SyncID) answer(ctx context.Context, op string, fits func(*record) bool) (*Event, error) {
	for {
		r, err := s.next(ctx, fits)
		if err != nil {
			if ctx.Err() != nil {
				s.mu.Lock()
				s.gaveUp = op
				s.mu.Unlock()
			}
			return nil, err
		}
		e := s.ID.process(r)
		if e == nil {
			continue // of an id that has been closed
		}
		s.mu.Lock()
		s.last = e
		s.mu.Unlock()
		switch e.Type {
		case EventEstablished:
			s.settle()
		case EventMulticastJoin:
			s.late()
		}
		return e, e.Err()
	}
}

// Event returns the event that the last call waited for: rdma_cm_id.event. It
// has what came with it: private data, and what the peer asks for. Nil before.
func (s *SyncID) Event() *Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Disconnected returns a channel that is closed when the connection has ended,
// by either side or with the device, or the id has lost a group, and when it is
// closed or migrated.
func (s *SyncID) Disconnected() <-chan struct{} { return s.gone }
