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
	// patience is how long a handshake may wait for its peer while other requests wait
	// for its slot.
	patience = time.Second
)

// handshakes are the handshakes of a listener that run in the background. Each has a
// goroutine, which ends when Accept has received its connection or its error.
type handshakes struct {
	accepted chan accepted
	over     chan struct{} // closed when the listener has ended
	running  sync.WaitGroup

	mu      sync.Mutex
	all     []*handshake
	ended   error         // why no more handshakes can begin
	room    chan struct{} // closed when a handshake ends
	dropped int           // how many were canceled to make room and have not ended yet
}

// accepted is what Accept returns.
type accepted struct {
	conn *Conn
	err  error
}

// A handshake is a connection between its request and Accept.
type handshake struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	waiting time.Time // since when it has waited for the peer; zero before and after
	dropped bool
}

var (
	errSlowPeer = errors.New("cm: the peer has not confirmed in time")
	errCrowded  = errors.New("cm: the peer has not confirmed while others wait")
)

// attention has the channels that wake Accept. It then calls begin again.
type attention struct {
	requests <-chan struct{}
	room     <-chan struct{}
	patience <-chan time.Time // nil if no timer runs
}

func newHandshakes() handshakes {
	return handshakes{accepted: make(chan accepted), over: make(chan struct{}), room: make(chan struct{})}
}

// begin starts a handshake for each waiting request, up to the limit. It returns an
// error if the listener has ended.
func (l *Listener) begin() (attention, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ended == nil {
		n, fresh, err := l.id.requests()
		if err != nil {
			l.end(err)
			break
		}
		next := attention{requests: fresh, room: l.room}
		switch {
		case n == 0:
			return next, nil
		case len(l.all) >= l.limit():
			next.patience = l.giveUp(n)
			return next, nil
		}
		if r := l.id.takeRequest(n > l.limit()); r != nil {
			l.start(r)
		}
	}
	return attention{}, l.ended
}

func (l *Listener) limit() int {
	if l.o.MaxHandshakes > 0 {
		return l.o.MaxHandshakes
	}
	return maxHandshakes
}

// giveUp cancels the handshakes that have waited longest for their peers, to make room
// for n requests. It returns a timer for the next one that can be canceled. The caller
// holds l.mu.
func (l *Listener) giveUp(n int) <-chan time.Time {
	now := time.Now()
	for _, h := range l.all { // oldest first
		switch age := now.Sub(h.waiting); {
		case l.dropped >= n:
			return nil
		case h.dropped || h.waiting.IsZero():
		case age < patience:
			return time.After(patience - age)
		default:
			h.dropped = true
			l.dropped++
			h.cancel(errCrowded)
		}
	}
	return time.After(patience) // some do not wait for their peer yet
}

// start starts a handshake. The caller holds l.mu.
func (l *Listener) start(r *record) {
	h := &handshake{}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	l.all = append(l.all, h)
	l.running.Go(func() { l.handshake(h, r) })
}

// handshake accepts a request and passes the connection to Accept.
func (l *Listener) handshake(h *handshake, r *record) {
	defer l.finish(h)
	conn, err := l.answer(h, r)
	if err != nil && ofPeer(err) {
		return
	}
	select {
	case l.accepted <- accepted{conn, err}:
	case <-l.over:
		if conn != nil {
			_ = conn.abandon() // no caller is left to return it to
		}
	}
}

// answer accepts the request and waits for the peer's confirmation.
func (l *Listener) answer(h *handshake, r *record) (*Conn, error) {
	s, err := l.id.child(r)
	if err != nil {
		return nil, err
	}
	timeout := l.o.HandshakeTimeout
	if timeout <= 0 {
		timeout = handshakeTimeout
	}
	defer l.waits(h, time.Time{})
	return (&Request{id: s, o: &l.o}).accept(&l.o, func() (context.Context, context.CancelFunc) {
		l.waits(h, time.Now())
		return context.WithTimeoutCause(h.ctx, timeout, errSlowPeer)
	})
}

// waits records since when a handshake has waited for its peer.
func (l *Listener) waits(h *handshake, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.waiting = since
}

// ofPeer reports whether a handshake has failed because of the peer or because the
// listener has ended.
func ofPeer(err error) bool {
	for _, e := range []error{ErrRejected, ErrDisconnected, ErrUnreachable, ErrTimeout, errSlowPeer, errCrowded, ErrListenerClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// finish removes a handshake, which makes room for another one.
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
	if h.dropped {
		l.dropped--
	}
	close(l.room)
	l.room = make(chan struct{})
}

// stop ends all handshakes and prevents new ones.
func (l *Listener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.end(listenerClosed(l.id.name(), closed("wait on", l.id.name())))
	}
}

// end is stop with a reason. The caller holds l.mu.
func (l *Listener) end(why error) {
	l.ended = why
	close(l.over)
	for _, h := range l.all {
		h.cancel(why)
	}
}

// listenerClosed returns the error of a listener that has ended.
func listenerClosed(name string, why error) error {
	e := &Error{Op: "accept at", Object: name, Kind: ErrListenerClosed, Err: why}
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
