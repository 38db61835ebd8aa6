package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/ctxerr"
)

// ClientOptions configure a [Client] and its connections. Nil stands for the zero ClientOptions, and the zero value of
// each field for its default.
type ClientOptions[S any] struct {
	Options
	// Conns is how many connections the client keeps: 1 by default.
	Conns int
	// MinBackoff and MaxBackoff bound the time between two attempts to connect: 50 milliseconds and 2 seconds by
	// default. It doubles with each attempt, and a random part of it is left out. A connection that ends within
	// MaxBackoff counts as an attempt that has failed, so that a server which accepts connections and ends them is not
	// asked more often than one that does not run.
	MinBackoff, MaxBackoff time.Duration
	// Setup is called for each new connection. It returns what belongs to the connection, such as the tokens that
	// the server sends first. An error that means that the connection has ended, or that the server is shutting down
	// (see Client.Do), leads to another attempt, and any other is returned to the caller.
	Setup func(ctx context.Context, c *Conn) (S, error)
}

// A Client keeps connections to a server and connects again when they end. S is the type of what belongs to each
// connection. Its methods may be called concurrently.
type Client[S any] struct {
	addr    string
	options *ClientOptions[S]
	next    atomic.Uint32
	slots   []slot[S]
	stats   clientStats
	open    context.Context // ends with Close
	end     context.CancelFunc
}

// A slot has the current connection.
type slot[S any] struct {
	dialing chan struct{} // has room for one: held while a call connects
	backoff backoff       // belongs to the call that connects
	mu      sync.Mutex
	link    *link[S]
	closed  bool
	conns   []*Conn // all that are not released
}

// A backoff says when a slot may connect.
type backoff struct {
	wait time.Duration // after the next attempt
	next time.Time     // the next attempt is not made before
	last error         // of the attempt before
}

// A link is a connection with its users. It is closed by the last of them after it has ended.
type link[S any] struct {
	c     *Conn
	s     S
	users int
	ended bool
}

// NewClient returns a client for the server at addr. It connects when it is used.
func NewClient[S any](addr string, o *ClientOptions[S]) *Client[S] {
	full := ClientOptions[S]{}
	if o != nil {
		full = *o
	}
	o = &full
	o.Conns = max(o.Conns, 1)
	o.MinBackoff = orDefault(o.MinBackoff, 50*time.Millisecond)
	o.MaxBackoff = max(orDefault(o.MaxBackoff, 2*time.Second), o.MinBackoff)
	cl := &Client[S]{addr: addr, options: o, slots: make([]slot[S], o.Conns)}
	cl.open, cl.end = context.WithCancel(context.Background())
	for i := range cl.slots {
		cl.slots[i].dialing = make(chan struct{}, 1)
	}
	return cl
}

// Do calls f with a connection, the next one in turn. If it has ended, Do connects again first, until
// ctx ends. Do calls f once: if the connection ends in f, it is unknown what the server has done.
// Do returns what f returns, net.ErrClosed after Close, and context.Cause(ctx) with the last error of an attempt if
// ctx ends before there is a connection. It also returns [ErrUndelivered] if it closes a connection that has ended with
// messages which f has sent, also in an earlier call: use Call for what has to arrive. Do does not try again after an
// error that another attempt would also return, and says so: there is no device, the server speaks other versions of
// the protocol ([ErrVersion]), another protocol ([ErrProtocol]), or does not know the client ([ErrUnauthenticated]).
// Do also returns the error of a connection that has ended and cannot be released. Further calls try to release it
// again before they connect.
//
// If f returns a [*CallError] with [CodeUnavailable], the server of its connection is shutting down: further calls use
// another connection.
func (cl *Client[S]) Do(ctx context.Context, f func(ctx context.Context, c *Conn, s S) error) error {
	_, err := cl.do(ctx, f)
	return err
}

// Retry is [Client.Do] for what may be done more than once, such as reading: if f returns an error because its
// connection has ended, or because the server is shutting down (see [Client.Do]), Retry calls f again with another
// connection, until ctx ends, and then returns
// context.Cause(ctx) with the last error. It waits as between two attempts to connect if the connection had been
// established a short time before. It can return [ErrUndelivered] for messages of other calls that share the
// connection, and drops it when it tries again.
func (cl *Client[S]) Retry(ctx context.Context, f func(ctx context.Context, c *Conn, s S) error) error {
	for {
		again, err := cl.do(ctx, f)
		switch {
		case !again:
			return err
		case ctx.Err() != nil:
			return &Error{Op: "retry with " + cl.addr, Err: fmt.Errorf("%w (last: %w)", ctxerr.Of(ctx), err)}
		}
		cl.stats.retries.Add(1)
	}
}

// do reports whether a call with another connection may succeed: the connection has ended, in f or before.
func (cl *Client[S]) do(ctx context.Context, f func(ctx context.Context, c *Conn, s S) error) (again bool, err error) {
	s := &cl.slots[int(cl.next.Add(1))%len(cl.slots)]
	l, err := cl.acquire(ctx, s)
	if err != nil {
		var before *earlier
		return errors.As(err, &before), &Error{Op: "connect to " + cl.addr, Err: err}
	}
	retire := false
	defer func() { err = errors.Join(err, s.release(l, retire)) }()
	err = f(ctx, l.c, l.s)
	retire = isUnavailable(err)
	return retire || err != nil && hasEnded(l.c, err), err
}

// isUnavailable reports whether err is that of a call which the server has not begun, because it is shutting down.
func isUnavailable(err error) bool {
	var e *CallError
	return errors.As(err, &e) && e.Code == CodeUnavailable
}

// hasEnded reports whether err means that c has ended. It may also be an error of another connection. The EOF of Recv
// does not match ErrDisconnected.
func hasEnded(c *Conn, err error) bool {
	var closed *CloseError // of either side, such as that of Options.IdleTimeout
	return (errors.Is(err, ErrDisconnected) || errors.Is(err, io.EOF) || errors.As(err, &closed)) && c.Err() != nil
}

// acquire returns a link that works, for one more user.
func (cl *Client[S]) acquire(ctx context.Context, s *slot[S]) (*link[S], error) {
	if l, err := s.use(); l != nil || err != nil {
		return l, err
	}
	select {
	case s.dialing <- struct{}{}:
		defer func() { <-s.dialing }()
	case <-cl.open.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctxerr.Of(ctx)
	}
	for {
		if l, err := s.use(); l != nil || err != nil { // another call has connected
			return l, err
		}
		if err := cl.pause(ctx, &s.backoff); err != nil {
			return nil, err
		}
		if err := s.releaseAgain(); err != nil {
			return nil, fmt.Errorf("release the connection before: %w", err)
		}
		c, v, err := cl.connect(ctx, s)
		switch {
		case err == nil || mayPass(err):
		case isFinal(err):
			return nil, fmt.Errorf("%w: the client does not try again, as the server would refuse it again", err)
		default:
			return nil, err
		}
		cl.attempted(&s.backoff, err, ctx.Err() != nil)
		if err == nil {
			return s.set(c, v)
		}
	}
}

// attempted computes when the next attempt may be made. ended reports whether the context of this one, whose error is
// err, has ended.
func (cl *Client[S]) attempted(b *backoff, err error, ended bool) {
	now := time.Now()
	if now.Sub(b.next) > cl.options.MaxBackoff { // the connection before has lived so long, or there was no attempt
		b.wait = 0
	}
	b.wait = min(max(2*b.wait, cl.options.MinBackoff), cl.options.MaxBackoff)
	b.next = now.Add(b.wait/2 + rand.N(b.wait/2+1))
	switch {
	case err == nil:
		b.last = errEnded
	case b.last == nil || !ended: // an attempt that its context has ended says less than the one before
		b.last = err
	}
}

// errEnded is the last error after a connection that was established.
var errEnded = errors.New("rdma: the connection before has ended a short time after it was established")

// pause waits until the next attempt may be made.
func (cl *Client[S]) pause(ctx context.Context, b *backoff) error {
	t := time.NewTimer(time.Until(b.next))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-cl.open.Done():
		return net.ErrClosed
	case <-ctx.Done():
		if b.last == nil {
			return ctxerr.Of(ctx)
		}
		return fmt.Errorf("%w (last: %w)", ctxerr.Of(ctx), b.last)
	}
}

// connect dials and calls Setup, until ctx ends or the client is closed.
func (cl *Client[S]) connect(ctx context.Context, to *slot[S]) (c *Conn, s S, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(cl.open, func() { cancel(net.ErrClosed) })()
	if c, err = Dial(ctx, cl.addr, &cl.options.Options); err != nil {
		cl.stats.failed.Add(1)
		return nil, s, err
	}
	cl.stats.connected.Add(1)
	if err = to.add(c); err != nil || cl.options.Setup == nil {
		return c, s, err
	}
	if s, err = cl.options.Setup(ctx, c); err != nil {
		if hasEnded(c, err) && !errors.Is(err, ErrDisconnected) {
			err = errPeerClosed // mayPass then accepts it
		}
		return nil, s, errors.Join(err, to.end(c))
	}
	return c, s, nil
}

// isFinal reports whether the two programs do not fit together, whatever happens later.
func isFinal(err error) bool {
	return errors.Is(err, ErrProtocol) || errors.Is(err, ErrVersion) || errors.Is(err, ErrUnauthenticated)
}

// mayPass reports whether another attempt may succeed after err.
func mayPass(err error) bool {
	var refused *CallError // of a call in Setup
	switch {
	case isFinal(err):
		return false
	case errors.As(err, &refused): // which may match an error of a context
		return isUnavailable(err)
	}
	for _, e := range []error{cm.ErrRejected, cm.ErrUnreachable, cm.ErrTimeout, ErrDisconnected, context.DeadlineExceeded,
		context.Canceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// use returns the link of a slot for one more user, or nil if there is none that works.
func (s *slot[S]) use() (*link[S], error) {
	l, err := s.current()
	if l == nil || l.c.Err() == nil {
		return l, err
	}
	err = s.release(l, false)
	if errors.Is(err, ErrUndelivered) {
		err = &earlier{err}
	}
	return nil, err
}

// earlier is the error of closing a connection on which earlier calls have sent messages.
type earlier struct{ err error }

func (e *earlier) Error() string { return e.err.Error() }
func (e *earlier) Unwrap() error { return e.err }

// current returns the link of a slot for one more user, or nil if there is none. It may have ended.
func (s *slot[S]) current() (*link[S], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, net.ErrClosed
	case s.link != nil:
		s.link.users++
	}
	return s.link, nil
}

// add adds a new connection to the slot, or ends it if the client is closed.
func (s *slot[S]) add(c *Conn) error {
	s.mu.Lock()
	s.conns = append(s.conns, c)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errors.Join(net.ErrClosed, s.end(c))
	}
	return nil
}

// set makes a connection the one of the slot, for one user. After Close, which ends it, set returns an error.
func (s *slot[S]) set(c *Conn, v S) (*link[S], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	s.link = &link[S]{c: c, s: v, users: 1}
	return s.link, nil
}

// release ends the use of a link, and closes it if it has ended and has no other user. Retire is whether further calls
// are not to use it.
func (s *slot[S]) release(l *link[S], retire bool) error {
	if !s.drop(l, retire || l.c.Err() != nil) {
		return nil
	}
	return s.end(l.c)
}

// end closes a connection. If that fails, releaseAgain and Close of the client try again.
func (s *slot[S]) end(c *Conn) error {
	err := c.Close()
	if !c.isUnreleased() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns = slices.DeleteFunc(s.conns, func(other *Conn) bool { return other == c })
	}
	return err
}

// releaseAgain ends connections whose Close has failed. The slot does not connect while it returns an error, so that
// their number is bounded.
func (s *slot[S]) releaseAgain() error {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	return s.endAll(slices.DeleteFunc(conns, func(c *Conn) bool { return !c.isUnreleased() }))
}

// endAll ends connections, all at the same time.
func (s *slot[S]) endAll(conns []*Conn) error {
	errs := make([]error, len(conns))
	var ending sync.WaitGroup
	for i, c := range conns {
		ending.Go(func() { errs[i] = s.end(c) })
	}
	ending.Wait()
	return errors.Join(errs...)
}

// drop removes a user of a link, which may have ended, and reports whether the caller is to close it. Conn.Err may call
// functions of a Trace, so the caller calls it without s.mu.
func (s *slot[S]) drop(l *link[S], ended bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	if !l.ended && ended {
		l.ended = true
		if s.link == l {
			s.link = nil
		}
	}
	return l.ended && l.users == 0
}

// Close closes the connections, all at the same time. Calls that use them return net.ErrClosed. If a call is closing a
// connection that has ended, Close waits for it. The errors are those of [Conn.Close]. After an error it may be called
// again. It is idempotent.
func (cl *Client[S]) Close() error {
	cl.end()
	errs := make([]error, len(cl.slots))
	var closing sync.WaitGroup
	for i := range cl.slots {
		closing.Go(func() { errs[i] = cl.slots[i].close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// close prevents further use of the slot, and ends its connections. It waits for calls that are ending one.
func (s *slot[S]) close() error {
	s.mu.Lock()
	s.closed, s.link = true, nil
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	return s.endAll(conns)
}

// clientStats are a client's part for ClientStats.
type clientStats struct{ connected, failed, retries atomic.Uint64 }

// ClientStats say what a client has done since its begin.
type ClientStats struct {
	Connected uint64 // connections that were established
	Failed    uint64 // attempts to connect
	Retries   uint64 // calls by Retry after the first one
	Conns     int    // that are in use
}

// Stats returns what the client has done.
func (cl *Client[S]) Stats() ClientStats {
	k := &cl.stats
	s := ClientStats{Connected: k.connected.Load(), Failed: k.failed.Load(), Retries: k.retries.Load()}
	for i := range cl.slots {
		slot := &cl.slots[i]
		slot.mu.Lock()
		if slot.link != nil {
			s.Conns++
		}
		slot.mu.Unlock()
	}
	return s
}
