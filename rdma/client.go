package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cm"
)

// ClientOptions configure a [Client]. The zero value of each field stands for its default.
type ClientOptions[S any] struct {
	// Options are those of the connections.
	Options *Options
	// Conns is how many connections the client keeps: 1 by default.
	Conns int
	// MinBackoff and MaxBackoff bound the time between two attempts to connect: 50 milliseconds and 2 seconds by
	// default. It doubles with each attempt, and a random part of it is left out.
	MinBackoff, MaxBackoff time.Duration
	// Setup is called for each new connection. It returns what belongs to the connection, such as the tokens that
	// the server sends first. An error that means that the connection has ended leads to another attempt, and any
	// other is returned to the caller.
	Setup func(ctx context.Context, c *Conn) (S, error)
}

// A Client keeps connections to a server and connects again when they end. S is the type of what belongs to each
// connection. Its methods may be called concurrently.
type Client[S any] struct {
	addr    string
	options ClientOptions[S]
	next    atomic.Uint32
	slots   []slot[S]
	open    context.Context // ends with Close
	end     context.CancelFunc
}

// A slot has the current connection.
type slot[S any] struct {
	dialing chan struct{} // has room for one: held while a call connects
	mu      sync.Mutex
	link    *link[S]
	closed  bool
}

// A link is a connection with its users. It is closed by the last of them after it has ended.
type link[S any] struct {
	c     *Conn
	s     S
	users int
	ended bool
}

// NewClient returns a client for the server at addr. It connects when it is used.
func NewClient[S any](addr string, o ClientOptions[S]) *Client[S] {
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
// ctx ends before there is a connection. An attempt that cannot succeed later, for example because there is no
// device, also ends Do.
func (cl *Client[S]) Do(ctx context.Context, f func(ctx context.Context, c *Conn, s S) error) error {
	_, err := cl.do(ctx, f)
	return err
}

// Retry is [Client.Do] for what may be done more than once, such as reading: if the connection ends in f, Retry calls
// f again with another connection, until ctx ends.
func (cl *Client[S]) Retry(ctx context.Context, f func(ctx context.Context, c *Conn, s S) error) error {
	for {
		lost, err := cl.do(ctx, f)
		if !lost || ctx.Err() != nil {
			return err
		}
	}
}

// do reports whether the connection has ended in f.
func (cl *Client[S]) do(ctx context.Context, f func(ctx context.Context, c *Conn, s S) error) (lost bool, err error) {
	s := &cl.slots[int(cl.next.Add(1))%len(cl.slots)]
	l, err := cl.acquire(ctx, s)
	if err != nil {
		return false, &Error{Op: "connect to " + cl.addr, Err: err}
	}
	defer func() { err = errors.Join(err, s.release(l)) }()
	err = f(ctx, l.c, l.s)
	return err != nil && hasEnded(l.c, err), err
}

// hasEnded reports whether err means that c has ended. The EOF of Recv does not match ErrDisconnected.
func hasEnded(c *Conn, err error) bool {
	return errors.Is(err, ErrDisconnected) || errors.Is(err, io.EOF) && c.Err() != nil
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
		return nil, context.Cause(ctx)
	}
	var last error
	for wait := cl.options.MinBackoff; ; wait = min(2*wait, cl.options.MaxBackoff) {
		if l, err := s.use(); l != nil || err != nil { // another call has connected
			return l, err
		}
		c, v, err := cl.connect(ctx)
		if err == nil {
			return s.set(c, v)
		}
		if !mayPass(err) {
			return nil, err
		}
		if last == nil || ctx.Err() == nil { // an attempt that ctx has ended says less than the one before
			last = err
		}
		if err := cl.pause(ctx, wait, last); err != nil {
			return nil, err
		}
	}
}

// pause waits between two attempts. last is the error of an attempt.
func (cl *Client[S]) pause(ctx context.Context, d time.Duration, last error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w (last: %w)", context.Cause(ctx), last)
	}
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-cl.open.Done():
		return net.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("%w (last: %w)", context.Cause(ctx), last)
	}
}

// connect dials and calls Setup, until ctx ends or the client is closed.
func (cl *Client[S]) connect(ctx context.Context) (c *Conn, s S, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(cl.open, func() { cancel(net.ErrClosed) })()
	if c, err = Dial(ctx, cl.addr, cl.options.Options); err != nil || cl.options.Setup == nil {
		return c, s, err
	}
	if s, err = cl.options.Setup(ctx, c); err != nil {
		if hasEnded(c, err) && !errors.Is(err, ErrDisconnected) {
			err = &lost{err} // mayPass then accepts it
		}
		return nil, s, errors.Join(err, c.Close())
	}
	return c, s, nil
}

// mayPass reports whether another attempt may succeed after err.
func mayPass(err error) bool {
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	l := s.link
	if l == nil {
		return nil, nil
	}
	if l.c.Err() != nil {
		l.ended, s.link = true, nil
		if l.users == 0 {
			return nil, l.c.Close()
		}
		return nil, nil
	}
	l.users++
	return l, nil
}

// set makes a new connection that of the slot, for one user.
func (s *slot[S]) set(c *Conn, v S) (*link[S], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	s.link = &link[S]{c: c, s: v, users: 1}
	return s.link, nil
}

// release ends the use of a link.
func (s *slot[S]) release(l *link[S]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	if !l.ended && l.c.Err() != nil {
		l.ended = true
		if s.link == l {
			s.link = nil
		}
	}
	if l.ended && l.users == 0 {
		return l.c.Close()
	}
	return nil
}

// Close closes the connections. Calls that use them return net.ErrClosed. It is idempotent.
func (cl *Client[S]) Close() error {
	cl.end()
	var errs []error
	for i := range cl.slots {
		s := &cl.slots[i]
		s.mu.Lock()
		s.closed = true
		l := s.link
		s.link = nil
		s.mu.Unlock()
		if l != nil {
			errs = append(errs, l.c.Close())
		}
	}
	return errors.Join(errs...)
}
