package cm

import (
	"context"
	"sync"
	"time"
)

const (
	maxHandshakes    = 256              // the default of Options.MaxHandshakes
	handshakeTimeout = 10 * time.Second // the default of Options.HandshakeTimeout
	// minPeerTime is how long a handshake may wait for its peer while other requests
	// wait for its slot.
	minPeerTime = time.Second
)

// handshakes are the handshakes of a listener that run in the background. Each has a
// goroutine, which ends when Accept has received its connection or its error.
type handshakes struct {
	id      *SyncID // of the listener
	options Options

	results   chan handshakeResult
	done      chan struct{} // closed when the listener has ended
	running   sync.WaitGroup
	withoutID sync.WaitGroup // those whose request has no SyncID yet

	mu       sync.Mutex
	active   []*handshake
	cause    error         // why no more handshakes can begin
	slotFree chan struct{} // closed when a handshake ends
	canceled int           // how many were canceled to free a slot and have not ended yet
}

// handshakeResult is what Accept returns.
type handshakeResult struct {
	conn *Conn
	err  error
}

// A handshake is a connection between its request and Accept.
type handshake struct {
	ctx          context.Context
	cancel       context.CancelCauseFunc
	waitingSince time.Time // since when it has waited for the peer; zero before and after
	canceled     bool
}

// wakeups has the channels that wake Accept. It then calls startHandshakes again.
type wakeups struct {
	requests <-chan struct{}
	slotFree <-chan struct{}
	timer    <-chan time.Time // nil if no timer runs
}

func newHandshakes() handshakes {
	return handshakes{results: make(chan handshakeResult), done: make(chan struct{}), slotFree: make(chan struct{})}
}

// startHandshakes starts a handshake for each waiting request, up to the limit. It
// returns an error if the listener has ended.
func (hs *handshakes) startHandshakes() (wakeups, error) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for hs.cause == nil {
		n, fresh, err := hs.id.requestState()
		if err != nil {
			hs.endHandshakes(err)
			break
		}
		next := wakeups{requests: fresh, slotFree: hs.slotFree}
		switch {
		case n == 0:
			return next, nil
		case len(hs.active) >= hs.limit():
			next.timer = hs.cancelOldest(n)
			return next, nil
		}
		if r := hs.id.removeRequest(n > hs.limit()); r != nil {
			hs.startHandshake(r)
		}
	}
	return wakeups{}, hs.cause
}

func (hs *handshakes) limit() int {
	if hs.options.MaxHandshakes > 0 {
		return hs.options.MaxHandshakes
	}
	return maxHandshakes
}

// cancelOldest cancels the handshakes that have waited longest for their peers, to
// make room for n requests. It returns a timer for the next one that can be
// canceled. The caller holds hs.mu.
func (hs *handshakes) cancelOldest(n int) <-chan time.Time {
	now := time.Now()
	for hs.canceled < n {
		h := hs.longestWaiting()
		if h == nil {
			return time.After(minPeerTime) // some do not wait for their peer yet
		}
		if age := now.Sub(h.waitingSince); age < minPeerTime {
			return time.After(minPeerTime - age)
		}
		h.canceled = true
		hs.canceled++
		h.cancel(errCrowded)
	}
	return nil
}

// longestWaiting returns the handshake that has waited longest for its peer and is not
// canceled, or nil. It need not be the first that started, which may have been slow in
// Setup. The caller holds hs.mu.
func (hs *handshakes) longestWaiting() (longest *handshake) {
	for _, h := range hs.active {
		if h.canceled || h.waitingSince.IsZero() {
			continue
		}
		if longest == nil || h.waitingSince.Before(longest.waitingSince) {
			longest = h
		}
	}
	return longest
}

// startHandshake starts a handshake. The caller holds hs.mu.
func (hs *handshakes) startHandshake(r *record) {
	h := &handshake{}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	hs.active = append(hs.active, h)
	hs.withoutID.Add(1)
	hs.running.Go(func() { hs.run(h, r) })
}

// run accepts a request and passes the connection to Accept.
func (hs *handshakes) run(h *handshake, r *record) {
	defer hs.finish(h)
	conn, peer, err := hs.acceptRequest(h, r)
	if peer {
		return
	}
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
func (hs *handshakes) acceptRequest(h *handshake, r *record) (_ *Conn, peer bool, _ error) {
	s, err := hs.id.child(r)
	hs.withoutID.Done()
	if err != nil {
		return nil, isPeerError(err), err
	}
	timeout := hs.options.HandshakeTimeout
	if timeout <= 0 {
		timeout = handshakeTimeout
	}
	defer hs.setWaiting(h, time.Time{})
	return (&Request{id: s, options: &hs.options}).accept(&hs.options, func() (context.Context, context.CancelFunc) {
		hs.setWaiting(h, time.Now())
		return context.WithTimeoutCause(h.ctx, timeout, errSlowPeer)
	})
}

// setWaiting records since when a handshake has waited for its peer.
func (hs *handshakes) setWaiting(h *handshake, since time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.waitingSince = since
}

// finish removes a handshake, which frees its slot for another one.
func (hs *handshakes) finish(h *handshake) {
	h.cancel(nil)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for k := range hs.active {
		if hs.active[k] == h {
			hs.active = append(hs.active[:k], hs.active[k+1:]...)
			break
		}
	}
	if h.canceled {
		hs.canceled--
	}
	close(hs.slotFree)
	hs.slotFree = make(chan struct{})
}

// stop ends all handshakes and prevents new ones.
func (hs *handshakes) stop() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.cause == nil {
		hs.endHandshakes(listenerClosed(hs.id.name(), closed("wait on", hs.id.name())))
	}
}

// endHandshakes is stop with a reason. The caller holds hs.mu.
func (hs *handshakes) endHandshakes(why error) {
	hs.cause = why
	close(hs.done)
	for _, h := range hs.active {
		h.cancel(why)
	}
}
