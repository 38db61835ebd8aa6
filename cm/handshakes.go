package cm

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
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
	accepted chan accepted
	done     chan struct{} // closed when the listener has ended
	running  sync.WaitGroup
	adopting sync.WaitGroup // those whose request has no SyncID yet

	mu       sync.Mutex
	all      []*handshake
	cause    error         // why no more handshakes can begin
	slotFree chan struct{} // closed when a handshake ends
	canceled int           // how many were canceled to free a slot and have not ended yet
}

// accepted is what Accept returns.
type accepted struct {
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

var (
	errSlowPeer = errors.New("cm: the peer has not confirmed in time")
	errCrowded  = errors.New("cm: the peer has not confirmed while others wait")
)

// wakeups has the channels that wake Accept. It then calls startHandshakes again.
type wakeups struct {
	requests <-chan struct{}
	slotFree <-chan struct{}
	timer    <-chan time.Time // nil if no timer runs
}

func newHandshakes() handshakes {
	return handshakes{accepted: make(chan accepted), done: make(chan struct{}), slotFree: make(chan struct{})}
}

// startHandshakes starts a handshake for each waiting request, up to the limit. It
// returns an error if the listener has ended.
func (l *Listener) startHandshakes() (wakeups, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cause == nil {
		n, fresh, err := l.id.requestState()
		if err != nil {
			l.endHandshakes(err)
			break
		}
		next := wakeups{requests: fresh, slotFree: l.slotFree}
		switch {
		case n == 0:
			return next, nil
		case len(l.all) >= l.limit():
			next.timer = l.cancelOldest(n)
			return next, nil
		}
		if r := l.id.removeRequest(n > l.limit()); r != nil {
			l.startHandshake(r)
		}
	}
	return wakeups{}, l.cause
}

func (l *Listener) limit() int {
	if l.o.MaxHandshakes > 0 {
		return l.o.MaxHandshakes
	}
	return maxHandshakes
}

// cancelOldest cancels the handshakes that have waited longest for their peers, to
// make room for n requests. It returns a timer for the next one that can be
// canceled. The caller holds l.mu.
func (l *Listener) cancelOldest(n int) <-chan time.Time {
	now := time.Now()
	for l.canceled < n {
		h := l.longestWaiting()
		if h == nil {
			return time.After(minPeerTime) // some do not wait for their peer yet
		}
		if age := now.Sub(h.waitingSince); age < minPeerTime {
			return time.After(minPeerTime - age)
		}
		h.canceled = true
		l.canceled++
		h.cancel(errCrowded)
	}
	return nil
}

// longestWaiting returns the handshake that has waited longest for its peer and is not
// canceled, or nil. It need not be the first that started, which may have been slow in
// Setup. The caller holds l.mu.
func (l *Listener) longestWaiting() (longest *handshake) {
	for _, h := range l.all {
		if h.canceled || h.waitingSince.IsZero() {
			continue
		}
		if longest == nil || h.waitingSince.Before(longest.waitingSince) {
			longest = h
		}
	}
	return longest
}

// startHandshake starts a handshake. The caller holds l.mu.
func (l *Listener) startHandshake(r *record) {
	h := &handshake{}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	l.all = append(l.all, h)
	l.adopting.Add(1)
	l.running.Go(func() { l.handshake(h, r) })
}

// handshake accepts a request and passes the connection to Accept.
func (l *Listener) handshake(h *handshake, r *record) {
	defer l.finish(h)
	conn, peer, err := l.acceptRequest(h, r)
	if peer {
		return
	}
	select {
	case l.accepted <- accepted{conn, err}:
	case <-l.done:
		if conn != nil {
			_ = conn.abandon() // no caller is left to return it to
		}
	}
}

// acceptRequest accepts the request and waits for the peer's confirmation. It reports
// whether the error is of the peer only.
func (l *Listener) acceptRequest(h *handshake, r *record) (_ *Conn, peer bool, _ error) {
	s, err := l.id.child(r)
	l.adopting.Done()
	if err != nil {
		return nil, isPeerError(err), err
	}
	timeout := l.o.HandshakeTimeout
	if timeout <= 0 {
		timeout = handshakeTimeout
	}
	defer l.setWaiting(h, time.Time{})
	return (&Request{id: s, o: &l.o}).accept(&l.o, func() (context.Context, context.CancelFunc) {
		l.setWaiting(h, time.Now())
		return context.WithTimeoutCause(h.ctx, timeout, errSlowPeer)
	})
}

// setWaiting records since when a handshake has waited for its peer.
func (l *Listener) setWaiting(h *handshake, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.waitingSince = since
}

// isPeerError reports whether a handshake has failed because of the peer or because
// the listener has ended.
func isPeerError(err error) bool {
	for _, e := range []error{ErrRejected, ErrDisconnected, ErrUnreachable, ErrTimeout, errSlowPeer, errCrowded, ErrListenerClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// finish removes a handshake, which frees its slot for another one.
func (l *Listener) finish(h *handshake) {
	h.cancel(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.all {
		if l.all[k] == h {
			l.all = append(l.all[:k], l.all[k+1:]...)
			break
		}
	}
	if h.canceled {
		l.canceled--
	}
	close(l.slotFree)
	l.slotFree = make(chan struct{})
}

// stop ends all handshakes and prevents new ones.
func (l *Listener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.endHandshakes(listenerClosed(l.id.name(), closed("wait on", l.id.name())))
	}
}

// endHandshakes is stop with a reason. The caller holds l.mu.
func (l *Listener) endHandshakes(why error) {
	l.cause = why
	close(l.done)
	for _, h := range l.all {
		h.cancel(why)
	}
}

// listenerClosed returns the error of a listener that has ended.
func listenerClosed(name string, why error) error {
	e := &Error{Op: "accept at", Object: name, Kind: ErrListenerClosed, Err: withoutObject(why, name)}
	var own *Error
	var verbs *uverbs.Error
	switch {
	case errors.As(why, &own):
		e.Errno = own.Errno
	case errors.As(why, &verbs):
		e.Errno = verbs.Errno
	}
	return e
}
