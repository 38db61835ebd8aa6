package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
)

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
	cl := &Client[S]{options: o, rails: railsOf(addr, &o.Options, o.Rails)}
	cl.addr = joinAddrs(cl.rails)
	cl.slots = make([]slot[S], o.Conns*len(cl.rails))
	cl.open, cl.end = context.WithCancel(context.Background())
	for i := range cl.slots {
		cl.slots[i].rail, cl.slots[i].dialing = &cl.rails[i%len(cl.rails)], make(chan struct{}, 1)
	}
	return cl
}

// Do calls f with a connection, the next one in turn, or with ClientOptions.Rails the one that [Client] says. If it
// has ended, Do connects again first, or waits for that if no rail works, until ctx ends. Do calls f once: if the
// connection ends in f, it is unknown what the server has done. Do returns what f returns, net.ErrClosed after Close,
// and context.Cause(ctx) with the last error of an attempt if ctx ends before there is a connection. It also returns
// [ErrUndelivered] if it closes a connection that has ended with messages which f has sent, also in an earlier call:
// use Call for what has to arrive. Do does not try again after an error that another attempt would also return, and
// says so: there is no device, the server speaks other versions of the protocol ([ErrVersion]), another protocol
// ([ErrProtocol]), or does not know the client ([ErrUnauthenticated]). Do also returns the error of a connection that
// has ended and cannot be released. Further calls try to release it again before they connect.
//
// If f returns a [*CallError] with [CodeUnavailable], the server of its connection is shutting down: further calls use
// another connection.
func (cl *Client[S]) Do(ctx context.Context, f func(ctx context.Context, c *Conn, s S) error) error {
	_, err := cl.do(ctx, 0, f)
	return err
}

// Retry is [Client.Do] for what may be done more than once, such as reading: if f returns an error because its
// connection has ended, or because the server is shutting down (see [Client.Do]), Retry calls f again with another
// connection, until ctx ends, and then returns
// context.Cause(ctx) with the last error. It waits as between two attempts to connect if the connection had been
// established a short time before. It can return [ErrUndelivered] for messages of other calls that share the
// connection, and drops it when it tries again.
func (cl *Client[S]) Retry(ctx context.Context, f func(ctx context.Context, c *Conn, s S) error) error {
	return cl.retry(ctx, 0, f)
}

// retry is Retry, for part bytes that Spread transfers, or 0.
func (cl *Client[S]) retry(ctx context.Context, part int, f func(ctx context.Context, c *Conn, s S) error) error {
	for {
		again, err := cl.do(ctx, part, f)
		switch {
		case !again:
			return err
		case ctx.Err() != nil:
			return &Error{Op: "retry with " + cl.addr, Err: fmt.Errorf("%w (last: %w)", ctxerr.Of(ctx), err)}
		}
		cl.retries.Add(1)
	}
}

// do reports whether a call with another connection may succeed: the connection has ended, in f or before. See retry.
func (cl *Client[S]) do(ctx context.Context, part int, f func(ctx context.Context, c *Conn, s S) error) (again bool,
	err error) {
	var s *slot[S]
	var l *link[S]
	turn := cl.next.Add(1)
	if len(cl.rails) > 1 {
		s, l, err = cl.acquireRail(ctx, turn, part > 0)
	} else {
		s = &cl.slots[turn%uint32(len(cl.slots))]
		l, err = cl.acquire(ctx, s)
	}
	if err != nil {
		var before *earlier
		return errors.As(err, &before), &Error{Op: "connect to " + cl.addr, Err: err}
	}
	defer func() { err = errors.Join(err, s.release(l, err)) }()
	err = f(ctx, l.c, l.s)
	if len(cl.rails) > 1 {
		s.called(part, err, cl.options.MaxBackoff)
	}
	return err != nil && (isUnavailable(err) || hasEnded(l.c, err)), err
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
		last := func() error { return s.backoff.last }
		if err := cl.await(ctx, nil, time.Until(s.backoff.next), last); err != nil {
			return nil, err
		}
		if err := s.releaseAgain(); err != nil {
			return nil, fmt.Errorf("release the connection before: %w", err)
		}
		began := time.Now()
		c, v, err := cl.connect(ctx, s)
		s.keep(err)
		if err != nil && !mayPass(err) {
			return nil, finalError(err)
		}
		cl.attempted(&s.backoff, began, err, ctx.Err() != nil)
		if err == nil {
			return s.set(c, v, 1)
		}
	}
}

// Close closes the connections, all at the same time. Calls that use them return net.ErrClosed. If a call is closing a
// connection that has ended, Close waits for it. It does not wait for Setup. The errors are those of [Conn.Close].
// After an error it may be called again. It is idempotent.
func (cl *Client[S]) Close() error {
	cl.end()
	errs := make([]error, len(cl.slots))
	var closing sync.WaitGroup
	for i := range cl.slots {
		closing.Go(func() { errs[i] = cl.slots[i].close() })
	}
	closing.Wait()
	cl.attempts.Wait()
	if len(cl.rails) > 1 {
		for i := range cl.slots { // what an attempt could not release
			errs[i] = errors.Join(errs[i], cl.slots[i].releaseAgain())
		}
	}
	return errors.Join(errs...)
}

// ClientStats say what a client has done since its begin.
type ClientStats struct {
	Connected uint64 // connections that were established
	Failed    uint64 // attempts to connect
	Retries   uint64 // calls by Retry after the first one
	Conns     int    // connections that there are
}

// Stats returns what the client has done.
func (cl *Client[S]) Stats() ClientStats {
	s := ClientStats{Retries: cl.retries.Load()}
	for i := range cl.rails {
		s.Connected += cl.rails[i].connected.Load()
		s.Failed += cl.rails[i].failed.Load()
	}
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

// partSize is the length of the parts of Spread.
const partSize = 1 << 20

// partsPerConn is how many parts are on the way on each connection: one moves while the next one is started.
const partsPerConn = 2

// Spread divides n bytes into parts of 1 MiB, the last of which may be shorter, and calls f for each part, with
// connections of all rails that work. A rail that is faster gets more of them. Up to two calls of f for each connection
// of the client run at the same time. A part is repeated as [Client.Retry] does if its connection ends, so f must be
// something that may be done more than once, such as reading or writing a part of the server's memory:
//
//	err := cl.Spread(ctx, len(p), func(ctx context.Context, c *rdma.Conn, t rdma.Token, off, n int) error {
//		return c.Read(ctx, p[off:off+n], t, off)
//	})
//
// Spread returns the first error of a part, and ends the contexts of the others. It returns when all calls of f have
// ended.
func (cl *Client[S]) Spread(ctx context.Context, n int,
	f func(ctx context.Context, c *Conn, s S, off, n int) error) error {
	if n < 0 {
		return &Error{Op: "spread over " + cl.addr, Err: fmt.Errorf("%w: %d bytes", ErrBounds, n)}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := n / partSize
	if n%partSize > 0 {
		parts++
	}
	var next, done atomic.Int64
	var first error
	var once sync.Once
	var all sync.WaitGroup
	for range min(parts, partsPerConn*len(cl.slots)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < parts; i = int(next.Add(1)) - 1 {
				off := i * partSize
				size := min(partSize, n-off)
				err := cl.retry(ctx, size, func(ctx context.Context, c *Conn, s S) error { return f(ctx, c, s, off, size) })
				if err != nil {
					once.Do(func() { first = err })
					cancel()
					return
				}
				done.Add(1)
				if len(cl.rails) == 1 { // otherwise the slot has counted it
					cl.rails[0].parts.Add(uint64(size))
				}
			}
		})
	}
	all.Wait()
	if first == nil && done.Load() < int64(parts) {
		first = &Error{Op: "spread over " + cl.addr, Err: errPartExited}
	}
	return first
}

var errPartExited = errors.New("the function of a part has ended its goroutine")
