package cm

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/quota"
)

const (
	maxHandshakes    = 256              // the default of ListenOptions.MaxHandshakes
	handshakeTimeout = 10 * time.Second // the default of ListenOptions.HandshakeTimeout
	listenBacklog    = 4096             // the default of ListenOptions.Backlog
	// shareOfFree limits the handshakes of one address to this multiple of the free
	// slots, and one more. Alone, an address can therefore use about three quarters of
	// the slots, and an address without handshakes always finds one, unless more than 100
	// addresses compete.
	shareOfFree = 3
)

// crowdTime is how long a handshake may wait for its peer while other requests wait for
// its slot and no other peer at its address confirms: where peers confirm, the machines
// are only slow. Tests shorten it.
var crowdTime = 10 * time.Second

// handshakes are the handshakes of a listener. The dispatcher, a goroutine, runs from
// Listen to the end of the listener: it reads the requests and starts the handshakes.
// Each has a goroutine and a slot until Accept has received its connection or its error.
type handshakes struct {
	id      *SyncID // of the listener
	options ListenOptions
	conns   *quota.Limit // of the listener's connections

	results    chan handshakeResult
	done       chan struct{} // closed when the listener has ended
	wake       chan struct{} // wakes the dispatcher after the state has changed
	dispatcher sync.WaitGroup
	running    sync.WaitGroup // the handshakes
	withoutID  sync.WaitGroup // those whose request has no SyncID yet

	mu       sync.Mutex
	cause    error // why no more handshakes can begin
	peers    map[netip.Addr]*peerRequests
	waiting  int // requests that wait for a slot
	active   int // handshakes that are not confirmed
	ready    int // confirmed connections and errors that wait for Accept
	canceled int // how many of active were canceled to free a slot
	arrivals uint64
}

// handshakeResult has the results of Accept.
type handshakeResult struct {
	conn *Conn
	err  error
}

// peerRequests are the requests and handshakes of one address. It is removed when there
// are none.
type peerRequests struct {
	waiting []*request // in the order of their arrival
	active  []*handshake
	// confirmed is when the last handshake was confirmed.
	confirmed time.Time
	// silent is set if the last peer did not confirm.
	silent bool
}

// A request is a connection request that waits for a slot.
type request struct {
	*record
	peer    netip.Addr
	err     error // why peer is not known
	arrival uint64
}

// A handshake is a connection between its request and Accept.
type handshake struct {
	*request
	ctx          context.Context
	cancel       context.CancelCauseFunc
	waitingSince time.Time // since when it has waited for the peer; zero before and after
	canceled     bool
	confirmed    bool
}

func (hs *handshakes) init(o *ListenOptions) {
	if o != nil {
		hs.options = *o
	}
	hs.conns = hs.options.connLimit()
	hs.results, hs.done, hs.wake = make(chan handshakeResult), make(chan struct{}), make(chan struct{}, 1)
	hs.peers = map[netip.Addr]*peerRequests{}
}

// dispatch starts handshakes until the listener has ended. Then it rejects the requests
// that wait.
func (hs *handshakes) dispatch() {
	for {
		fresh, err := hs.receive()
		if err != nil {
			hs.end(err)
		}
		next, requests := hs.startHandshakes()
		if requests != nil {
			for _, q := range requests {
				hs.conns.Release(q.peer, 1)
				q.reject()
			}
			return
		}
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-fresh:
		case <-hs.wake:
		case <-timer:
		case <-hs.done:
		}
	}
}

// receive moves the requests that have arrived to the queues of their addresses. It
// returns a channel that is closed when more arrive, or the reason why none can.
func (hs *handshakes) receive() (fresh <-chan struct{}, err error) {
	for hs.endCause() == nil {
		r, fresh, err := hs.id.tryNext(isRequest)
		if err != nil {
			return nil, listenerClosed(hs.id.name(), err)
		}
		if r == nil {
			return fresh, nil
		}
		q := &request{record: r}
		q.peer, q.err = r.peer()
		if err := hs.conns.Acquire(q.peer, 1); err != nil {
			hs.refuse(q, connLimitError(err))
			continue
		}
		if evicted := hs.enqueue(q); evicted != nil {
			hs.conns.Release(evicted.peer, 1)
			hs.refuse(evicted, backlogError(hs.backlog()))
		}
	}
	return nil, nil
}

// refuse rejects a request for the reason in err. While many requests are being rejected,
// it waits.
func (hs *handshakes) refuse(q *request, err error) {
	q.node.rejects.waitRoom(context.Background(), hs.done)
	q.discard(err)
	hs.notifyRefused(q.peer, err)
}

func (hs *handshakes) notifyRefused(peer netip.Addr, err error) {
	if f := hs.options.Refused; f != nil {
		f(peer, err)
	}
}

// enqueue adds a request. If too many wait, it removes and returns the oldest one of the
// address that has the most: its client has waited longest and may have given up.
func (hs *handshakes) enqueue(q *request) (evicted *request) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.arrivals++
	q.arrival = hs.arrivals
	p := hs.peers[q.peer]
	if p == nil {
		p = &peerRequests{}
		hs.peers[q.peer] = p
	}
	p.waiting = append(p.waiting, q)
	hs.waiting++
	if hs.waiting <= hs.backlog() {
		return nil
	}
	for _, other := range hs.peers {
		if len(other.waiting) > len(p.waiting) {
			p = other
		}
	}
	return hs.dequeue(p, false)
}

// dequeue removes and returns the oldest or the newest request of an address. The caller
// holds hs.mu.
func (hs *handshakes) dequeue(p *peerRequests, newest bool) *request {
	k := 0
	if newest {
		k = len(p.waiting) - 1
	}
	q := p.waiting[k]
	p.waiting = slices.Delete(p.waiting, k, k+1)
	hs.waiting--
	hs.forget(q.peer)
	return q
}

// forget removes an address without requests and handshakes. The caller holds hs.mu.
func (hs *handshakes) forget(peer netip.Addr) {
	if p := hs.peers[peer]; p != nil && len(p.waiting) == 0 && len(p.active) == 0 {
		delete(hs.peers, peer)
	}
}

// startHandshakes starts handshakes as long as there are requests and slots. It returns
// after what time one may be canceled for those that still wait, or 0. If the listener
// has ended, it removes and returns the requests that wait.
func (hs *handshakes) startHandshakes() (next time.Duration, rest []*request) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.cause != nil {
		rest = []*request{}
		for _, p := range hs.peers {
			rest = append(rest, p.waiting...)
			p.waiting = nil
		}
		hs.waiting = 0
		return 0, rest
	}
	for {
		p, newest := hs.nextPeer()
		if p == nil {
			return hs.cancelOldest(time.Now()), nil
		}
		hs.startHandshake(p, newest)
	}
}

// nextPeer returns the address whose request is served next, and whether that is its
// newest one: the address with the fewest handshakes that has a request and may have
// another handshake. It returns nil if there is none. The caller holds hs.mu.
func (hs *handshakes) nextPeer() (next *peerRequests, newest bool) {
	free := hs.limit() - hs.active - hs.ready
	if hs.waiting == 0 || free <= 0 || hs.ready >= hs.backlog() {
		return nil, false
	}
	crowded := hs.waiting > hs.limit() // the clients of the oldest may have given up
	for _, p := range hs.peers {
		switch {
		case len(p.waiting) == 0 || len(p.active) > shareOfFree*free:
		case next == nil, len(p.active) < len(next.active),
			len(p.active) == len(next.active) && p.waiting[0].arrival < next.waiting[0].arrival:
			next = p
		}
	}
	return next, next != nil && (crowded || next.silent)
}

func (hs *handshakes) limit() int {
	if hs.options.MaxHandshakes > 0 {
		return hs.options.MaxHandshakes
	}
	return maxHandshakes
}

func (hs *handshakes) backlog() int {
	if hs.options.Backlog > 0 {
		return hs.options.Backlog
	}
	return listenBacklog
}

func (hs *handshakes) timeout() time.Duration {
	if hs.options.HandshakeTimeout > 0 {
		return hs.options.HandshakeTimeout
	}
	return handshakeTimeout
}

// cancelOldest cancels the handshakes that have waited longest for their peers, those of
// the address with the most first, to make room for the requests that wait. It returns
// after what time another one can be canceled, or 0. The caller holds hs.mu.
func (hs *handshakes) cancelOldest(now time.Time) time.Duration {
	if hs.ready >= hs.backlog() {
		return 0 // they would start none
	}
	for hs.canceled < hs.waiting {
		p, h := hs.longestWaiting()
		if h == nil {
			return crowdTime // none waits for its peer yet
		}
		since := h.waitingSince
		if p.confirmed.After(since) {
			since = p.confirmed
		}
		if age := now.Sub(since); age < crowdTime {
			return crowdTime - age
		}
		h.canceled = true
		hs.canceled++
		h.cancel(errCrowded)
	}
	return 0
}

// longestWaiting returns the handshake that has waited longest for its peer, among those of
// the address that has the most handshakes that wait and are not canceled, or nil. It
// need not be the first that started, which may have been slow in Setup. The caller holds
// hs.mu.
func (hs *handshakes) longestWaiting() (most *peerRequests, longest *handshake) {
	count := 0
	for _, p := range hs.peers {
		n, oldest := 0, (*handshake)(nil)
		for _, h := range p.active {
			if h.canceled || h.waitingSince.IsZero() {
				continue
			}
			n++
			if oldest == nil || h.waitingSince.Before(oldest.waitingSince) {
				oldest = h
			}
		}
		if n > count || n == count && n > 0 && oldest.waitingSince.Before(longest.waitingSince) {
			count, most, longest = n, p, oldest
		}
	}
	return most, longest
}

// startHandshake starts a handshake for a request of an address. The caller holds hs.mu.
func (hs *handshakes) startHandshake(p *peerRequests, newest bool) {
	h := &handshake{}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	p.active = append(p.active, h) // before dequeue, so that p is not removed
	hs.active++
	h.request = hs.dequeue(p, newest)
	hs.withoutID.Add(1)
	hs.running.Go(func() { hs.run(h) })
}

// run accepts a request and passes the connection to Accept.
func (hs *handshakes) run(h *handshake) {
	defer hs.finish(h)
	conn, peer, err := hs.acceptRequest(h)
	if peer {
		return
	}
	hs.confirm(h, err == nil)
	select {
	case hs.results <- handshakeResult{conn, err}:
	case <-hs.done:
		if conn != nil {
			_ = conn.abandon() // no caller is left to return it to
		}
	}
}

// acceptRequest accepts the request and waits for the peer's confirmation. It reports
// whether the error is of the peer only.
func (hs *handshakes) acceptRequest(h *handshake) (_ *Conn, peer bool, _ error) {
	s, err := hs.child(h.request)
	hs.withoutID.Done()
	if err != nil {
		return nil, isPeerError(err), err
	}
	defer hs.setWaiting(h, time.Time{})
	o := &hs.options.Options
	return (&Request{id: s, options: o}).accept(o, func() (context.Context, context.CancelFunc) {
		hs.setWaiting(h, time.Now())
		return context.WithTimeoutCause(h.ctx, hs.timeout(), errSlowPeer)
	})
}

// child returns the id of a request. The listener counts it until it is closed.
func (hs *handshakes) child(q *request) (*SyncID, error) {
	s, err := (*SyncID)(nil), q.err
	if err != nil {
		q.discard(nil)
	} else {
		s, err = hs.id.child(q.record)
	}
	if err != nil {
		hs.conns.Release(q.peer, 1)
		return nil, err
	}
	s.ID.whenClosed(func() { hs.conns.Release(q.peer, 1) })
	return s, nil
}

// setWaiting records since when a handshake has waited for its peer.
func (hs *handshakes) setWaiting(h *handshake, since time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.waitingSince = since
}

// confirm records that a handshake waits for Accept. byPeer is whether the peer has
// confirmed it.
func (hs *handshakes) confirm(h *handshake, byPeer bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if byPeer {
		p := hs.peers[h.peer]
		p.confirmed, p.silent = time.Now(), false
	}
	hs.deactivate(h)
	h.confirmed = true
	hs.ready++
	hs.signal()
}

// deactivate removes a handshake from those that are not confirmed. The caller holds
// hs.mu.
func (hs *handshakes) deactivate(h *handshake) {
	p := hs.peers[h.peer]
	p.active = slices.DeleteFunc(p.active, func(other *handshake) bool { return other == h })
	hs.active--
	if h.canceled {
		hs.canceled--
	}
	hs.forget(h.peer)
}

// finish removes a handshake, which frees its slot for another one.
func (hs *handshakes) finish(h *handshake) {
	h.cancel(nil)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h.confirmed {
		hs.ready--
	} else {
		hs.peers[h.peer].silent = true
		hs.deactivate(h)
	}
	hs.signal()
}

// signal wakes the dispatcher.
func (hs *handshakes) signal() {
	select {
	case hs.wake <- struct{}{}:
	default:
	}
}

// stop ends all handshakes and prevents new ones.
func (hs *handshakes) stop() {
	hs.end(listenerClosed(hs.id.name(), closed("", "")))
}

// end is stop with a reason. Only the first one counts.
func (hs *handshakes) end(why error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.cause != nil {
		return
	}
	hs.cause = why
	close(hs.done)
	for _, p := range hs.peers {
		for _, h := range p.active {
			h.cancel(why)
		}
	}
}

// endCause returns why the listener has ended.
func (hs *handshakes) endCause() error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.cause
}
