package rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
)

// ClientOptions configure a [Client] and its connections. Nil stands for the zero ClientOptions, and the zero value of
// each field for its default.
type ClientOptions[S any] struct {
	Options
	// Rails are further ways to the server, beside addr from Options.LocalAddr: see [Client].
	Rails []Rail
	// Conns is how many connections the client keeps, with Rails on each rail: 1 by default.
	Conns int
	// MinBackoff and MaxBackoff bound the time between two attempts to connect: 50 milliseconds and 2 seconds by
	// default. It doubles with each attempt, and a random part of it is left out. A connection that ends within
	// MaxBackoff counts as an attempt that has failed, so that a server which accepts connections and ends them is not
	// asked more often than one that does not run.
	MinBackoff, MaxBackoff time.Duration
	// Setup is called for each new connection. It returns what belongs to the connection, such as the tokens that
	// the server sends first. An error that means that the connection has ended, or that the server is shutting down
	// (see Client.Do), leads to another attempt, and any other is returned to the caller, with Rails if all fail so. With
	// Rails, Setup is called by goroutines of the client, at the same time for several connections, and ctx is not that
	// of a call: it ends with Close, and after Options.Timeout or 30 seconds.
	Setup func(ctx context.Context, c *Conn) (S, error)
}

// A Client keeps connections to a server and connects again when they end. S is the type of what belongs to each
// connection. Its methods may be called concurrently. Messages of one connection arrive in order. Between calls of Do,
// Retry and Spread, there is no order if the client has several connections.
//
// With ClientOptions.Rails, a client uses several devices or ports. Its address and each of the Rails have Conns
// connections, which goroutines of the client establish while calls are made, with the pauses between MinBackoff and
// MaxBackoff. They also close those that have ended, and RailStats has their errors, such as [ErrUndelivered]. Do uses
// a connection that works: of a device on the NUMA node of the caller's CPU if there is one, and of these the one with
// the fewest calls. So calls of one node use only its devices, and a rail whose calls fail fast gets many. Connections
// whose port is down, and for MaxBackoff those on which the deadline of a call has passed, are used only if there is no
// other. A call that has begun is not moved to another rail: see [Client.Retry]. While there is no connection, calls
// wait. The client does not check that all rails lead to the same server: Setup can, or Options.TLS.
type Client[S any] struct {
	addr    string // of all rails, for errors
	options *ClientOptions[S]
	rails   []rail
	slots   []slot[S]
	retries atomic.Uint64
	open    context.Context // ends with Close
	end     context.CancelFunc

	dials
}

// A slot has the current connection.
type slot[S any] struct {
	rail    *rail
	dialing chan struct{} // has room for one: held while a call connects
	backoff backoff       // belongs to the call that connects, with rails to mu
	mu      sync.Mutex
	link    *link[S]
	closed  bool
	calls   uint64  // that have got a link
	conns   []*Conn // all that are not released

	connecting bool         // a goroutine connects: see connectRails
	doubted    atomic.Int64 // until when the slot is doubted, in Unix nanoseconds, or 0: see called
	latest     place        // of the latest connection
	err        error        // of the latest attempt, or why the latest connection has ended
	past       traffic      // of connections that are released
}

// A backoff says when a slot may connect.
type backoff struct {
	wait time.Duration // after the next attempt
	next time.Time     // the next attempt is not made before
	last error         // of the attempt before

	begun   time.Time // when the attempt before has
	refused bool      // it has failed as another one would; for rails
}

// A link is a connection with its users. It is closed by the last of them after it has ended.
type link[S any] struct {
	c     *Conn
	s     S
	users int           // calls and, with rails, the goroutine that waits for its end
	ended bool          // or retired
	left  chan struct{} // closed then
	place
}

// hasEnded reports whether err means that c has ended. It may also be an error of another connection. The EOF of Recv
// does not match ErrDisconnected.
func hasEnded(c *Conn, err error) bool {
	var closed *CloseError // of either side, such as that of Options.IdleTimeout
	return (errors.Is(err, ErrDisconnected) || errors.Is(err, io.EOF) || errors.As(err, &closed)) && c.Err() != nil
}

// attempted computes when the next attempt may be made. ended reports whether the context of this one, whose error is
// err, has ended.
func (cl *Client[S]) attempted(b *backoff, began time.Time, err error, ended bool) {
	if began.Sub(b.next) > cl.options.MaxBackoff { // the connection before has lived so long, or there was no attempt
		b.wait = 0
	}
	b.wait = min(max(2*b.wait, cl.options.MinBackoff), cl.options.MaxBackoff)
	b.begun = began
	b.next = time.Now().Add(b.wait/2 + rand.N(b.wait/2+1))
	switch {
	case err == nil:
		b.last = errEnded
	case b.last == nil || !ended: // an attempt that its context has ended says less than the one before
		b.last = err
	}
}

// errEnded is the last error after a connection that was established.
var errEnded = errors.New("rdma: the connection before has ended a short time after it was established")

// connect dials and calls Setup, until ctx ends or the client is closed.
func (cl *Client[S]) connect(ctx context.Context, to *slot[S]) (c *Conn, s S, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(cl.open, func() { cancel(net.ErrClosed) })()
	if c, err = to.dial(ctx); err == nil {
		s, err = cl.setup(ctx, to, c)
	}
	return c, s, err
}

// dial establishes a connection.
func (s *slot[S]) dial(ctx context.Context) (*Conn, error) {
	c, err := Dial(ctx, s.rail.addr, s.rail.options)
	if err != nil {
		s.rail.failed.Add(1)
		return nil, err
	}
	s.rail.connected.Add(1)
	return c, s.add(c)
}

// setup calls Setup, and ends the connection if that does not succeed.
func (cl *Client[S]) setup(ctx context.Context, to *slot[S], c *Conn) (s S, err error) {
	if cl.options.Setup == nil {
		return s, nil
	}
	err = errSetupExited
	defer func() {
		if err != nil {
			err = errors.Join(err, to.end(c))
		}
	}()
	s, err = cl.options.Setup(ctx, c)
	if err != nil && hasEnded(c, err) && !errors.Is(err, ErrDisconnected) {
		err = errPeerClosed // mayPass then accepts it
	}
	return s, err
}

// errSetupExited is the error of an attempt whose Setup has called runtime.Goexit, as testing.T's Fatal does.
var errSetupExited = errors.New("rdma: ClientOptions.Setup has ended its goroutine")

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

// finalError returns the error of an attempt that is not repeated.
func finalError(err error) error {
	if isFinal(err) {
		return fmt.Errorf("%w: the client does not try again, as the server would refuse it again", err)
	}
	return err
}

// await waits for a channel, but not longer than d. last returns the error of the attempt before.
func (cl *Client[S]) await(ctx context.Context, ended <-chan struct{}, d time.Duration, last func() error) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	case <-cl.open.Done():
		return net.ErrClosed
	case <-ctx.Done():
		if err := last(); err != nil {
			return fmt.Errorf("%w (last: %w)", ctxerr.Of(ctx), err)
		}
		return ctxerr.Of(ctx)
	}
	return nil
}

// use returns the link of a slot for one more user, or nil if there is none that works.
func (s *slot[S]) use() (*link[S], error) {
	l, err := s.current()
	if l == nil || l.c.Err() == nil {
		return l, err
	}
	s.mu.Lock()
	s.calls--
	s.mu.Unlock()
	err = s.release(l, nil)
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
		s.calls++
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

// set makes a connection the one of the slot, for one user. Calls is 1 if that is a call, or 0. After Close, which ends
// it, set returns an error.
func (s *slot[S]) set(c *Conn, v S, calls uint64) (*link[S], error) {
	p := placeOf(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	s.link, s.latest, s.err = &link[S]{c: c, s: v, users: 1, left: make(chan struct{}), place: p}, p, nil
	s.calls += calls
	s.latest.verbs = nil // which may be closed before another connection
	s.doubted.Store(0)
	return s.link, nil
}

// release ends the use of a link, and closes it if it has ended and has no other user. err is that of the use: if the
// server is shutting down, the link is retired, and further calls do not use it.
func (s *slot[S]) release(l *link[S], err error) error {
	why := l.c.Err()
	if why == nil && isUnavailable(err) {
		why = err
	}
	if !s.drop(l, why) {
		return nil
	}
	return s.end(l.c)
}

// end closes a connection. If that fails, releaseAgain and Close of the client try again.
func (s *slot[S]) end(c *Conn) error {
	err := c.Close()
	if !c.isUnreleased() {
		stats := c.Stats()
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.conns, c); i >= 0 {
			s.conns = slices.Delete(s.conns, i, i+1)
			s.past.add(&stats)
			if errors.Is(err, ErrUndelivered) {
				s.rail.undelivered.Add(1)
			}
		}
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

// drop removes a user of a link, and reports whether the caller is to close it. why, if not nil, is why the link has
// ended or is retired. Conn.Err may call functions of a Trace, so the caller calls it without s.mu.
func (s *slot[S]) drop(l *link[S], why error) bool {
	s.mu.Lock()
	l.users--
	if why != nil && !l.ended {
		l.ended = true
		close(l.left)
		if s.link == l {
			s.link, s.err = nil, why
		}
	}
	last := l.ended && l.users == 0
	s.mu.Unlock()
	return last
}

// close prevents further use of the slot, and ends its connections. It waits for calls that are ending one.
func (s *slot[S]) close() error {
	s.mu.Lock()
	s.closed, s.link = true, nil
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	return s.endAll(conns)
}

// isUnavailable reports whether err is that of a call which the server has not begun, because it is shutting down.
func isUnavailable(err error) bool {
	if err == nil { // without an allocation
		return false
	}
	var e *CallError
	return errors.As(err, &e) && e.Code == CodeUnavailable
}

// A Rail is a way to the server of a [Client]: another address of the server, another one of this machine, or both.
type Rail struct {
	// Addr is the address of the server, host:port. If it is empty, it is the address of the client. With Options.TLS,
	// the server's certificate has to have each host, or ServerName.
	Addr string
	// LocalAddr is the address to dial from, which chooses the device and its port. If it is the zero AddrPort, the
	// routing table decides.
	LocalAddr netip.AddrPort
}

// A rail is a Rail of a client, or the address of a client without Rails.
type rail struct {
	addr              string
	options           *Options
	connected, failed atomic.Uint64
	parts             atomic.Uint64 // bytes
	undelivered       atomic.Uint64 // connections
}

func railsOf(addr string, o *Options, more []Rail) []rail {
	all := make([]rail, 1+len(more))
	all[0].addr, all[0].options = addr, o
	for i, r := range more {
		own := *o
		own.LocalAddr = r.LocalAddr
		all[1+i].addr, all[1+i].options = cmp.Or(r.Addr, addr), &own
	}
	return all
}

// joinAddrs returns the addresses of rails, each once.
func joinAddrs(rails []rail) string {
	var all []string
	known := map[string]bool{}
	for i := range rails {
		if a := rails[i].addr; !known[a] {
			known[a] = true
			all = append(all, a)
		}
	}
	return strings.Join(all, ", ")
}

// dials are a client's part for several slots, and for connections that its goroutines establish, if it has several
// rails.
type dials struct {
	next        atomic.Uint32  // turns of the slots
	numa        atomic.Bool    // a rail has a NUMA node
	attempts    sync.WaitGroup // by goroutines, until they call Setup
	nextAttempt atomic.Int64   // when one can be due, in Unix nanoseconds, for calls that have a link

	mu    sync.Mutex
	ended chan struct{} // closed when the next attempt has ended; nil if no call waits
}

// attempt returns what is closed when the next attempt has ended.
func (d *dials) attempt() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil {
		d.ended = make(chan struct{})
	}
	return d.ended
}

func (d *dials) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended != nil {
		close(d.ended)
		d.ended = nil
	}
}

// A place is where a connection is on this machine.
type place struct {
	verbs *uverbs.Context // nil if the connection was closed at once
	name  string          // of the device
	port  int
	node  int // NUMA node, or -1
	local netip.AddrPort
}

func placeOf(c *Conn) place {
	p := place{verbs: c.cm.Verbs(), port: c.cm.ID().Port(), node: -1, local: c.local}
	if p.verbs != nil {
		p.name = p.verbs.Name()
		p.node = machine.NUMANode(p.name)
	}
	return p
}

func (p *place) down() bool { return p.verbs != nil && verbs.PortDown(p.verbs, p.port) }

// nodes has what callerNode knows, for each P of the runtime.
var nodes = sync.Pool{New: func() any { return new(nodeOfP) }}

type nodeOfP struct{ node, left int }

// nodeCalls is how many calls callerNode returns the same node for: the scheduler moves threads rarely.
const nodeCalls = 64

// callerNode returns the NUMA node of the CPU that the caller runs on, or of a moment ago, or -1.
func callerNode() int {
	p := nodes.Get().(*nodeOfP)
	if p.left == 0 {
		p.node, p.left = machine.CPUNode(), nodeCalls
	}
	p.left--
	node := p.node
	nodes.Put(p)
	return node
}

// traffic is what connections have moved.
type traffic struct{ sentBytes, receivedBytes, operations uint64 }

func (t *traffic) add(s *Stats) {
	t.sentBytes += s.SentBytes
	t.receivedBytes += s.ReceivedBytes
	t.operations += s.Operations
}
