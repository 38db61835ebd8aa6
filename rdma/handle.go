package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/uverbs"
)

// A Handler handles one request of a peer, and returns the reply or an error. [Conn.Handle] calls it in a goroutine
// that may handle further requests after it: what a Handler sets for its goroutine, as by runtime.LockOSThread, it must
// undo. An interceptor is a function that returns a Handler which calls another one.
//
// ctx has the deadline of the peer's context. It ends when the peer cancels the call, and when the connection ends or
// is closed: see [Message.Context]. [RequestOf] returns r for ctx and the contexts made of it. The bytes of r must not
// be used after the Handler has returned, but it may return a part of them.
//
// The caller gets an error as a [*CallError]: see [Message.ReplyError]. A Handler that has replied by [Message.Reply]
// or, without a copy, by [Message.ReplyBuffer] returns nil, nil. What it returns for a message that is not a call is
// not sent; an error of it is logged.
type Handler func(ctx context.Context, r *Request) (reply []byte, err error)

// A Request is a call of a peer, or a message, that a [Handler] handles. Conn.Handle releases it, unless the
// handler has released or sent it.
type Request struct {
	Message
	pairs []byte // of metadata
}

// Conn returns the connection, for example for the address of the peer, or to call it.
func (r *Request) Conn() *Conn { return r.c }

// Metadata is [Message.Metadata], also when the call has its reply.
func (r *Request) Metadata() map[string]string {
	if r.pairs == nil {
		return r.Message.Metadata()
	}
	return decodePairs(r.pairs)
}

type requestKey struct{}

// RequestOf returns the request that is handled, or nil if ctx is not that of a [Handler].
func RequestOf(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// HandleOptions configure [Conn.Handle]. Nil stands for the zero HandleOptions.
type HandleOptions struct {
	// MaxHandlers is how many handlers of a connection run at a time: Options.Depth by default, which is also how many
	// requests a peer can have sent that are not released. While as many run, further requests wait, and cancels
	// arrive.
	MaxHandlers int
}

// Handle returns a function for [Listener.Serve] that calls [Conn.Handle].
func Handle(h Handler, o *HandleOptions) func(ctx context.Context, c *Conn) error {
	return func(ctx context.Context, c *Conn) error { return c.Handle(ctx, h, o) }
}

// Handle receives messages and calls h for each, up to HandleOptions.MaxHandlers at the same time. It replies to calls
// as their handlers return. A request longer than Options.EagerSize does not delay shorter ones that come after it. If
// h panics, the caller gets a [*CallError] with [CodeInternal], the panic is logged with its stack to Options.Logger,
// or without it to slog.Default, at level error, and the connection goes on. h is not called for a call that its caller
// has canceled, or whose deadline has passed, before a handler could begin.
//
// Handle returns when all handlers have returned: nil if the peer has closed the connection or after
// [Listener.Shutdown], and otherwise the error of [Conn.Recv]. It returns [uverbs.ErrInvalid] for options out of range,
// and [uverbs.ErrBusy] if another call of Handle has not returned. Other calls must not receive meanwhile.
func (c *Conn) Handle(ctx context.Context, h Handler, o *HandleOptions) error {
	limit := c.options.Depth
	if o != nil && o.MaxHandlers != 0 {
		limit = o.MaxHandlers
	}
	s := &handling{c: c, handler: h, freed: make(chan struct{}, 1), further: make(chan Message)}
	if err := s.begin(limit); err != nil {
		return c.opError("handle calls of", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.end()
	defer s.running.Wait()
	defer close(s.further)
	defer cancel()
	for {
		m, err := s.next(ctx)
		switch {
		case err == io.EOF || errors.Is(err, ErrShutdown):
			return nil
		case err != nil:
			return err
		}
		select {
		case s.further <- m:
		default:
			s.running.Go(func() { s.work(ctx, m) })
		}
	}
}

// A handling is a call of Handle.
type handling struct {
	c       *Conn
	handler Handler
	running sync.WaitGroup // goroutines
	freed   chan struct{}  // has room for one: a handler has returned
	further chan Message   // to a spare
	spares  atomic.Int32   // goroutines that wait for a message to handle
}

// maxSpares is how many spares a connection has at most: enough for calls one after the other, and little memory beside
// thousands of idle connections. A goroutine that is started for a message must grow its stack.
const maxSpares = 1

func (s *handling) begin(limit int) error {
	if limit < 1 || limit > maxDepth {
		return fmt.Errorf("%w: HandleOptions.MaxHandlers is %d: set it to 1 to %d", uverbs.ErrInvalid, limit, maxDepth)
	}
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	if c.maxHandlers > 0 {
		return fmt.Errorf("%w: another call of Handle has not returned", uverbs.ErrBusy)
	}
	c.handles = handles{used: true, maxHandlers: limit}
	return nil
}

func (s *handling) end() {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.c.maxHandlers = 0
}

// next waits for a message that can be handled now, in the order of arrival. A message without memory is a call that is
// refused because of Listener.Shutdown.
func (s *handling) next(ctx context.Context) (Message, error) {
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	for {
		if err := s.ended(ctx); err != nil {
			return Message{}, err
		}
		if s.readNext(ctx) {
			continue // which may have released the lock
		}
		if m, ok := s.take(); ok {
			c.handlers++
			return m, nil
		}
		var err error
		if c.err != nil {
			err = s.awaitHandler(ctx)
		} else {
			err = c.step(ctx, needHandle, nil)
		}
		if err != nil {
			return Message{}, c.opError("receive from", err)
		}
	}
}

// ended returns why no more messages are handled, or nil.
func (s *handling) ended(ctx context.Context) error {
	c := s.c
	switch {
	case c.closing:
		return c.receiveError()
	case c.unreadable != nil:
		return c.opError("receive from", c.unreadable)
	case c.draining:
		if c.usable() != nil || c.handlers == 0 && c.firstRefused() < 0 {
			return ErrShutdown
		}
	case c.firstRead() < 0:
		if err := c.receiveError(); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return c.opError("receive from", ctxerr.Of(ctx))
	}
	return nil
}

// take removes a message that can be handled now, and reports whether there is one.
func (s *handling) take() (m Message, ok bool) {
	c := s.c
	if c.draining {
		return c.takeRefused()
	}
	i := c.firstRead()
	if i < 0 || c.handlers >= c.maxHandlers {
		return m, false
	}
	return c.deliver(c.takeArrived(i)), true
}

// awaitHandler waits until a handler has returned, when the connection has ended and nothing completes any more. It
// returns the error of ctx if that ends first.
func (s *handling) awaitHandler(ctx context.Context) error {
	s.c.unlock()
	defer s.c.mu.Lock()
	select {
	case <-s.freed:
		return nil
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	}
}

// readNext begins to read the first message of which no READ has begun, also while as many handlers run as may: shorter
// messages would always be complete before it. A goroutine does it if memory is to be registered. It reports whether
// there was one.
func (s *handling) readNext(ctx context.Context) bool {
	c := s.c
	if c.draining {
		return false
	}
	i := c.firstUnread()
	if i < 0 {
		return false
	}
	in := c.arrived[(c.first+i)%len(c.arrived)].large
	if begun, err := c.readAtOnce(in); begun || err != nil {
		return true // an error has ended the connection
	}
	in.grows = true // until fetch sets it
	c.fetches++
	s.running.Go(func() { s.fetch(ctx, in) })
	return true
}

// fetch begins to read a message for which memory is to be registered. If that fails, a call is dropped, and its caller
// gets the error, unless the peer has closed the connection. For another message, Handle returns the error.
func (s *handling) fetch(ctx context.Context, in *incoming) {
	c := s.c
	defer s.fetched()
	c.mu.Lock()
	in.grows = false
	var err error
	if !in.begun() && c.err == nil && !c.closing && c.room() > 0 {
		err = c.fetch(ctx, in)
	}
	if err == nil || ctx.Err() != nil || c.err != nil || c.closing {
		c.unlock()
		return
	}
	if in.offer.kind != kindCall {
		c.unreadable = err
		c.unlock()
		return
	}
	m := c.takeArrived(c.firstArrived(func(m *Message) bool { return m.large == in }))
	c.discard(m)
	c.unlock()
	s.replyError(ctx, m, &CallError{Code: CodeResourceExhausted, Text: err.Error()})
}

func (s *handling) fetched() {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.c.fetches--
}

// work handles a message, and further ones unless there are enough spares.
func (s *handling) work(ctx context.Context, m Message) {
	for ok := true; ok; s.spares.Add(-1) {
		if m.Buffer.m == nil {
			s.refuse(ctx, m)
		} else {
			s.run(ctx, m)
		}
		if ok = s.spares.Add(1) <= maxSpares; ok {
			m, ok = <-s.further
		}
	}
}

// run calls the handler for a message, replies and releases it.
func (s *handling) run(ctx context.Context, m Message) {
	defer s.done()
	if m.large != nil && m.large.seal != nil {
		s.c.mu.Lock()
		var err error
		m, err = s.c.opened(m)
		s.c.unlock()
		if err != nil {
			return // next returns it
		}
	}
	x := m.serveContext(ctx)
	x.watched.Store(true) // Handle waits
	defer s.c.endContext(x, errReturned)
	defer m.releaseRest()
	if m.IsCall() && x.Context.Err() != nil { // its caller does not wait any more
		if cause := context.Cause(x.Context); cause == errCanceled || cause == errDeadline {
			s.replyError(ctx, m, cause)
		}
		return
	}
	var reply []byte
	err := error(&CallError{Code: CodeInternal, Text: "the handler has ended its goroutine"})
	defer func() { s.reply(ctx, m, reply, err) }() // also if the handler calls runtime.Goexit
	reply, err = s.call(x, &Request{m, m.pairs()})
}

// call calls the handler. A panic is an error.
func (s *handling) call(ctx context.Context, r *Request) (reply []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.logger().Error("rdma: a handler has panicked", "local", s.c.local, "peer", s.c.peer, "panic", p, "stack",
				string(debug.Stack()))
			reply, err = nil, &CallError{Code: CodeInternal, Text: "the handler has panicked"}
		}
	}()
	reply, err = s.handler(context.WithValue(ctx, requestKey{}, r), r)
	if err != nil {
		err = callErrorOf(err) // the program's Error method may panic
	}
	return reply, err
}

// reply sends what a handler has returned.
func (s *handling) reply(ctx context.Context, m Message, reply []byte, err error) {
	switch {
	case !m.IsCall():
		if err != nil {
			s.logger().Warn("rdma: a handler of a message has failed", "local", s.c.local, "peer", s.c.peer, "error", err)
		}
		return
	case err != nil:
		s.replyError(ctx, m, err)
		return
	}
	err = m.Reply(ctx, reply)
	if err == nil || errors.Is(err, ErrNotCall) || s.over(ctx) {
		return // the handler has replied, or next returns why it cannot
	}
	var e *Error
	if errors.As(err, &e) {
		err = e.Err // without the addresses
	}
	s.replyError(ctx, m, &CallError{Code: CodeResourceExhausted, Text: "the reply cannot be sent: " + err.Error()})
}

// replyError sends an error to the caller.
func (s *handling) replyError(ctx context.Context, m Message, err error) {
	failed := m.ReplyError(ctx, err)
	if failed == nil || errors.Is(failed, ErrNotCall) || s.over(ctx) {
		return // next returns why
	}
	s.logger().Warn("rdma: the error of a handler cannot be sent", "local", s.c.local, "peer", s.c.peer, "error", failed)
}

// over reports whether no reply can be sent any more, also because the connection is being closed.
func (s *handling) over(ctx context.Context) bool {
	s.c.mu.Lock()
	defer s.c.unlock()
	return ctx.Err() != nil || s.c.usable() != nil
}

// refuse replies to a call whose handler does not begin.
func (s *handling) refuse(ctx context.Context, m Message) {
	defer s.done()
	s.replyError(ctx, m, errUnavailable)
}

// done ends the run of a handler.
func (s *handling) done() {
	s.c.mu.Lock()
	s.c.handlers--
	s.c.unlock()
	select {
	case s.freed <- struct{}{}:
	default: // awaitHandler looks at what all have freed
	}
}

func (s *handling) logger() *slog.Logger {
	if l := s.c.options.Logger; l != nil {
		return l
	}
	return slog.Default()
}
